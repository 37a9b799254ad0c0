"""Metadata (key 3): brokers, topics, partitions and their leaders; clients request it before they produce or fetch."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, field, since
from penstock.wire.types import ZERO_UUID, Int32, Uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: str | None = field(nullable_since=10)


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: Sequence[MetadataRequestTopic] | None = field(nullable_since=1)
    allow_auto_topic_creation: bool = since(4, default=True)
    include_cluster_authorized_operations: bool = since(8, default=False, until=10)
    include_topic_authorized_operations: bool = since(8, default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = since(1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: ErrorCode
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Sequence[Int32]
    isr_nodes: Sequence[Int32]
    offline_replicas: Sequence[Int32] = since(5, default=(), ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: ErrorCode
    name: str | None = field(nullable_since=12)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    is_internal: bool = since(1, default=False, ignorable=True)
    partitions: Sequence[MetadataResponsePartition]
    topic_authorized_operations: Int32 = since(8, default=-0x80000000)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Sequence[MetadataResponseBroker]
    cluster_id: str | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Sequence[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, default=-0x80000000, until=10)
    error_code: ErrorCode = since(13, default=ErrorCode.NONE, ignorable=True)
