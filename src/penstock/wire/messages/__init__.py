"""One file per API: its request and its response, for all versions, and the structs that only they use."""
