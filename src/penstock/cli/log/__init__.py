"""`penstock log …`: reads the files of a log, without a broker.

Invariant: files are read, never changed.
"""
