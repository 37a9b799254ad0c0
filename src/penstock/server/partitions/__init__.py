"""The partitions that this node leads or follows: appends, waiters, group commit, upkeep, traffic.

Invariant: a record is acknowledged when its log reports it as durable, and never before.
"""
