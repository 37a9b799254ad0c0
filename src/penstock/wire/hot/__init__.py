"""Hand-written codecs for Produce and Fetch: same bytes as the compiled codec, fewer objects, no copies."""
