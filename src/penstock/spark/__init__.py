"""Spark on Penstock: bulk processing of topics. Builds on the client and does not depend on a node's internals."""
