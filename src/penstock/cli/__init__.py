"""`penstock …`: the command line, with a file or a folder for each family of commands.

Invariant: commands are clients and see no inside; only `serve` opens the server, and `settings` checks its settings.
"""
