"""DescribeQuorum (key 55): the leader of the metadata quorum, and the log end offsets of its voters and observers."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import ZERO_UUID, Int32, Int64, UInt16, Uuid


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_name: str
    partitions: Sequence[PartitionData]


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: Sequence[TopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = since(2, default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None = since(2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartitionData]


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class Node(Struct):
    node_id: Int32
    listeners: Sequence[Listener]


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: ErrorCode
    error_message: str | None = since(2, default="", ignorable=True)
    topics: Sequence[DescribeQuorumResponseTopicData]
    nodes: Sequence[Node] = since(2, default=())
