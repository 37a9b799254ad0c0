"""The two messages that carry records, by hand: same bytes as the compiled codec, fewer objects, no copies."""
