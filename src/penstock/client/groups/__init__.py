"""Group membership with the classic and the new protocol (KIP-848), and offset commits.

Invariants: a partition is read only while the group assigns it to this member; only read offsets are committed.
"""
