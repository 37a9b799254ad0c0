"""The group coordinator: one shard per partition of the offsets topic, its log, its event history, consumer lag.

Invariant: a shard answers only while this node leads its partition and holds the lease.
"""
