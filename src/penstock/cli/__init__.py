"""`penstock …`: the command line. Its commands are clients; only `serve` opens the server."""
