"""The asyncio shell of a node; `node` puts its parts together.

Invariants: a part is complete when it is constructed, and depends only on parts constructed before it; cores decide,
and this package carries out what they decide.
"""
