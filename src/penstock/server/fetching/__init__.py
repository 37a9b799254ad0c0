"""Reading partitions for a Fetch: at once, or by waiting for bytes; for consumers, followers and fetch sessions.

Invariants: a consumer reads nothing beyond the high watermark, a read_committed one nothing beyond the last stable
offset; every pinned slice of a file is released.
"""
