"""Worlds of the coordinator core: shards of groups on a model log, and simulated consumers.

Checked: `checks`. Faults: `faults`.
"""
