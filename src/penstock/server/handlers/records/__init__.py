"""APIs that write, read, look up and delete records, and describe their producers and directories."""
