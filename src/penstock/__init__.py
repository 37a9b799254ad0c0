"""Penstock: a durable, ordered, replayable, partitioned log that speaks Apache Kafka's wire protocol."""

from penstock.version import __version__

TYPE_CHECKING = False  # for a type checker it is true; `typing` itself costs an import
if TYPE_CHECKING:
    from penstock.client.blocking import SyncClient
    from penstock.client.client import Client

__all__ = ["Client", "SyncClient", "__version__"]


def __getattr__(name: str) -> object:
    """Loads the client when it is first asked for: most rooms never do."""
    if name == "Client":
        from penstock.client.client import Client

        return Client
    if name == "SyncClient":
        from penstock.client.blocking import SyncClient

        return SyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
