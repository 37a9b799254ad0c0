"""Subscriptions and assignments of classic consumers in JoinGroup and SyncGroup; brokers mostly pass them on unread."""

from collections.abc import Sequence

from penstock.wire.declare import Message, Struct, since
from penstock.wire.types import Int32


class TopicPartition(Struct):
    topic: str
    partitions: Sequence[Int32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = since(1, default=(), ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: str | None = since(3, default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str
    partitions: Sequence[Int32]


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: Sequence[ConsumerProtocolAssignmentTopicPartition]
    user_data: bytes | None = None
