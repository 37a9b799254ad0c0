"""The light asyncio client that the tools use: connections, metadata, admin, producer, consumer; `penstock.Client`.

Whoever writes a program finds here what it needs: the client, settings, what is given and raised. All of it is loaded
when it is first asked for, so that a room of the client costs no more than itself.
"""

from importlib import import_module

TYPE_CHECKING = False  # for a type checker it is true; `typing` itself costs an import
if TYPE_CHECKING:
    from penstock.client.admin import Admin, CreatedTopic, NewTopic
    from penstock.client.blocking import SyncClient
    from penstock.client.client import Client, Credentials, Published
    from penstock.client.consumer import At, Consumer, Message, PartitionRecords
    from penstock.client.errors import (
        BufferFull,
        ClientError,
        Closed,
        CommitFailed,
        ConnectionLost,
        DeliveryTimedOut,
        LoginFailed,
        NotABroker,
        NotTrusted,
        OutOfRange,
        Refused,
        TimedOut,
        Unreachable,
        Unsupported,
    )
    from penstock.client.fetcher import FetchSettings
    from penstock.client.group_consumer import GroupConsumer
    from penstock.client.membership import GroupSettings
    from penstock.client.metadata import Topic, TopicPartition
    from penstock.client.offsets import Isolation
    from penstock.client.ports import ClientPorts
    from penstock.client.producer import Producer
    from penstock.client.sender import Delivery
    from penstock.model.errors import ErrorCode
    from penstock.records.compression import Codec

__all__ = [
    "Admin",
    "At",
    "BufferFull",
    "Client",
    "ClientError",
    "ClientPorts",
    "Closed",
    "Codec",
    "CommitFailed",
    "ConnectionLost",
    "Consumer",
    "CreatedTopic",
    "Credentials",
    "Delivery",
    "DeliveryTimedOut",
    "ErrorCode",
    "FetchSettings",
    "GroupConsumer",
    "GroupSettings",
    "Isolation",
    "LoginFailed",
    "Message",
    "NewTopic",
    "NotABroker",
    "NotTrusted",
    "OutOfRange",
    "PartitionRecords",
    "Producer",
    "Published",
    "Refused",
    "SyncClient",
    "TimedOut",
    "Topic",
    "TopicPartition",
    "Unreachable",
    "Unsupported",
]

_HOMES = {
    "penstock.client.admin": ("Admin", "CreatedTopic", "NewTopic"),
    "penstock.client.blocking": ("SyncClient",),
    "penstock.client.client": ("Client", "Credentials", "Published"),
    "penstock.client.consumer": ("At", "Consumer", "Message", "PartitionRecords"),
    "penstock.client.errors": (
        "BufferFull",
        "ClientError",
        "Closed",
        "CommitFailed",
        "ConnectionLost",
        "DeliveryTimedOut",
        "LoginFailed",
        "NotABroker",
        "NotTrusted",
        "OutOfRange",
        "Refused",
        "TimedOut",
        "Unreachable",
        "Unsupported",
    ),
    "penstock.client.fetcher": ("FetchSettings",),
    "penstock.client.group_consumer": ("GroupConsumer",),
    "penstock.client.membership": ("GroupSettings",),
    "penstock.client.metadata": ("Topic", "TopicPartition"),
    "penstock.client.offsets": ("Isolation",),
    "penstock.client.ports": ("ClientPorts",),
    "penstock.client.producer": ("Producer",),
    "penstock.client.sender": ("Delivery",),
    "penstock.model.errors": ("ErrorCode",),
    "penstock.records.compression": ("Codec",),
}


if not TYPE_CHECKING:  # a type checker knows the names, and tells of any other

    def __getattr__(name: str) -> object:
        """Loads what has this name from where it lives."""
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
