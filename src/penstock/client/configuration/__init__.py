"""The settings of a client: options with types, and the names that Kafka's Java clients give them.

Invariant: a setting without effect is refused, never ignored.
"""
