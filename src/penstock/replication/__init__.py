"""Leader and follower of one partition: what replicas agree on, and fetch sessions. Start at `replicas.py`."""
