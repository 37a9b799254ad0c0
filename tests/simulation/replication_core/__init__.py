"""Worlds of the replication core: the steppers of three to five brokers on model logs.

Checked: `checks`. Faults: `faults`.
"""
