"""This node in the metadata quorum: its replica of the metadata log, its snapshots, its quorum state, its peers.

Invariants: a vote or an epoch is on disk before it is sent to a peer; the log end is reported after a sync.
"""
