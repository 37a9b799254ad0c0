"""APIs of groups: members, committed offsets, administration, finding a coordinator.

Invariant: the shard of a group answers requests about it; a handler keeps no state of groups.
"""
