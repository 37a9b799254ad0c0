"""`penstock group …`: consumer groups, their lag, their rebalances and their offsets.

Invariant: a reset shows what it would change, and changes it only with --execute.
"""
