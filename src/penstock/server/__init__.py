"""The asyncio shell of a node: composition root, listener, dispatch, handlers, partitions, waiters."""
