"""`penstock.Client`: the high-level client.

    async with Client("localhost:9092") as client:
        await client.create_topic("orders", partitions=3)
        partition, offset = await client.publish("orders", b"value", "key")
        async for record in client.consume("orders", start="earliest", until_end=True): ...

Text is sent as UTF-8. `admin`, `producer` and `consumer` give access to all operations.
"""

from typing import Unpack

from penstock.client.async_client import AsyncClient
from penstock.client.blocking import SyncClient
from penstock.client.configuration.config import ConfigSource
from penstock.client.configuration.options import Bootstrap, ClientOptions


class Client(AsyncClient):
    """See the module, and `AsyncClient` for all methods."""

    @staticmethod
    def blocking(
        bootstrap: Bootstrap | None = None, *, config: ConfigSource | None = None, **options: Unpack[ClientOptions]
    ) -> SyncClient:
        """Returns the client for programs without an event loop; it takes the same arguments."""
        return SyncClient(bootstrap, config=config, **options)
