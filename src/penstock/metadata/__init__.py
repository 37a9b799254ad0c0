"""Cluster state: metadata records, the immutable image built from them, the controller that writes them, settings."""
