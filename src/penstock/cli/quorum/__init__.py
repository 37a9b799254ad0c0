"""`penstock quorum status …`: shows and changes the metadata quorum.

Invariant: voters are changed one at a time.
"""
