"""Worlds of the controller core: its decisions, simulated brokers, and a log that may lose its end.

Checked: `checks`. Faults: `faults`.
"""
