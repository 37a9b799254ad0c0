"""Group coordinator: assignments and committed offsets. One shard per partition of `__consumer_offsets`."""
