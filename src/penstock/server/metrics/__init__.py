"""Metrics of a node for Prometheus: one collector per area, and the page that they fill.

Invariants: each fact is reported by one node; a counter never decreases; no name on the page is chosen by a client.
"""
