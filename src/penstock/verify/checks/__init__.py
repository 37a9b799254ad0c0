"""One file per family of checks; each reads the index and yields findings."""
