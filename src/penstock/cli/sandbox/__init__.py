"""`penstock sandbox …`: a cluster of real processes on this machine.

Invariant: a process is signalled only if its start time is that of the node, because process ids are reused.
"""
