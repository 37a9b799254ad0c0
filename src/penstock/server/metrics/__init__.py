"""Metrics of a node for Prometheus: one collector per area, and the page that they fill."""
