"""Worlds of three whole servers with durability=replicated: acknowledged data may be in page caches only.

Checked: as in `replicating_servers`, for kills, single power cuts, and power cuts of all machines.
"""
