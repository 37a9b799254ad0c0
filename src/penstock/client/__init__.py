"""The light asyncio client that the tools use: connections, metadata, admin, producer, consumer; `penstock.Client`."""
