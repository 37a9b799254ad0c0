"""Leader and follower of one partition: fetch sessions, and what replicas agree on."""
