"""Cluster state: metadata records, the immutable image that they make, the controller that writes them, settings."""
