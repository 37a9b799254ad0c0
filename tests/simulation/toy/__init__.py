"""A toy service on the simulator: the same seed gives the same trace, in any process.

Checked: traces of two runs are equal.
"""
