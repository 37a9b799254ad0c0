"""Spark on Penstock: what works on a log in bulk. Stands on the client and knows nothing of a node's inside."""
