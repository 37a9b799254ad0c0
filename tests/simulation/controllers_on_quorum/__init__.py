"""Worlds of whole clusters without servers: deployed controllers on the log of raft cores.

Checked: the invariants of `raft_core` and `controller_core`.
"""
