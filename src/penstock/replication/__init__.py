"""Leader and follower of one partition: replication, ISR, and fetch sessions. Start at `replicas.py`."""
