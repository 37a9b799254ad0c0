"""What a node tells Prometheus: a collector per room, and the page that they fill."""
