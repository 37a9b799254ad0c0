"""The light asyncio client that the tools use: connections, metadata, admin, producer, consumer; `penstock.Client`.

This package exports the public API: the client, its settings, results and errors. Each name is loaded on first access,
so that importing one module of the client does not load the others.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers treat it as true; `typing` itself costs an import
if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin, CreatedTopic, NewTopic
    from penstock.client.async_client import Published
    from penstock.client.blocking import SyncClient
    from penstock.client.blocking_producer import Pending, SyncProducer
    from penstock.client.client import Client
    from penstock.client.configuration.config import ConfigError
    from penstock.client.configuration.options import (
        ClientOptions,
        ConsumerOptions,
        GroupConsumerOptions,
        ProducerOptions,
    )
    from penstock.client.connection.login import Credentials
    from penstock.client.consumer.consumer import At, Consumer, Message, PartitionRecords
    from penstock.client.consumer.fetcher import FetchSettings
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
        PublishFailed,
        Refused,
        TimedOut,
        Unpublished,
        Unreachable,
        Unsupported,
    )
    from penstock.client.groups.group_consumer import GroupConsumer
    from penstock.client.groups.membership import GroupSettings
    from penstock.client.metadata import Topic, TopicPartition
    from penstock.client.offsets import Isolation
    from penstock.client.ports import ClientPorts
    from penstock.client.producer.producer import Producer
    from penstock.client.producer.sender import Delivery
    from penstock.model.errors import ErrorCode
    from penstock.records.compression import Codec

__all__ = [
    "Admin",
    "At",
    "BufferFull",
    "Client",
    "ClientError",
    "ClientOptions",
    "ClientPorts",
    "Closed",
    "Codec",
    "CommitFailed",
    "ConfigError",
    "ConnectionLost",
    "Consumer",
    "ConsumerOptions",
    "CreatedTopic",
    "Credentials",
    "Delivery",
    "DeliveryTimedOut",
    "ErrorCode",
    "FetchSettings",
    "GroupConsumer",
    "GroupConsumerOptions",
    "GroupSettings",
    "Isolation",
    "LoginFailed",
    "Message",
    "NewTopic",
    "NotABroker",
    "NotTrusted",
    "OutOfRange",
    "PartitionRecords",
    "Pending",
    "Producer",
    "ProducerOptions",
    "PublishFailed",
    "Published",
    "Refused",
    "SyncClient",
    "SyncProducer",
    "TimedOut",
    "Topic",
    "TopicPartition",
    "Unpublished",
    "Unreachable",
    "Unsupported",
]

_HOMES = {
    "penstock.client.admin.admin": ("Admin", "CreatedTopic", "NewTopic"),
    "penstock.client.blocking": ("SyncClient",),
    "penstock.client.blocking_producer": ("Pending", "SyncProducer"),
    "penstock.client.async_client": ("Published",),
    "penstock.client.client": ("Client",),
    "penstock.client.configuration.config": ("ConfigError",),
    "penstock.client.connection.login": ("Credentials",),
    "penstock.client.consumer.consumer": ("At", "Consumer", "Message", "PartitionRecords"),
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
        "PublishFailed",
        "Refused",
        "TimedOut",
        "Unpublished",
        "Unreachable",
        "Unsupported",
    ),
    "penstock.client.consumer.fetcher": ("FetchSettings",),
    "penstock.client.groups.group_consumer": ("GroupConsumer",),
    "penstock.client.groups.membership": ("GroupSettings",),
    "penstock.client.metadata": ("Topic", "TopicPartition"),
    "penstock.client.offsets": ("Isolation",),
    "penstock.client.configuration.options": (
        "ClientOptions",
        "ConsumerOptions",
        "GroupConsumerOptions",
        "ProducerOptions",
    ),
    "penstock.client.ports": ("ClientPorts",),
    "penstock.client.producer.producer": ("Producer",),
    "penstock.client.producer.sender": ("Delivery",),
    "penstock.model.errors": ("ErrorCode",),
    "penstock.records.compression": ("Codec",),
}


if not TYPE_CHECKING:  # type checkers use the imports above, and report unknown names

    def __getattr__(name: str) -> object:
        """Imports a public name from its module."""
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
