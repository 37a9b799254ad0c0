"""`penstock dev` and `penstock server`: from options and a settings file to a running node.

Only `run` imports the server; every other command is a client.
"""
