"""The metadata quorum: KRaft, a Raft in which followers pull. Start at `raft.py`."""
