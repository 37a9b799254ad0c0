"""APIs that write, read, look up and delete records, and describe their producers and directories.

Invariant: a Produce request with acks=all is answered once its records are committed.
"""
