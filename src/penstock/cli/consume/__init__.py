"""`penstock consume`: where reading begins, and how records are printed.

Invariants: reading continues through an outage; a record counts as read once it was written to standard output.
"""
