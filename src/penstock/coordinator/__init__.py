"""Groups: who reads which partition, and how far. A shard per partition of `__consumer_offsets`."""
