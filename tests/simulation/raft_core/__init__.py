"""Worlds of the quorum core: steppers of raft on model disks.

Checked: `checks`. Faults: `faults`.
"""
