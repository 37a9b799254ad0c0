"""`penstock cluster …`: information, health and features of any cluster.

Invariant: an answer that is missing is shown as missing, and never taken for a good one.
"""
