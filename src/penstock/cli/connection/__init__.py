"""How a command finds its cluster and works with it.

Invariants: every command finds the cluster by one rule; a command that destroys something names the cluster first; a
command that needs the controllers begins only if a majority of them is confirmed.
"""
