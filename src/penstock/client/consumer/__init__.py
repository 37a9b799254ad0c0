"""Consumer without a group: reads partitions from given offsets, with bounded prefetching.

Invariant: records of a partition are returned in the order of their offsets, each once.
"""
