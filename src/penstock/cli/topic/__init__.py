"""`penstock topic …`: creates, shows, changes and deletes topics, and elects leaders.

Invariant: a command that deletes topics or records names the cluster first.
"""
