"""BeginQuorumEpoch (key 53): a new quorum leader announces itself."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged
from penstock.wire.types import ZERO_UUID, Int32, UInt16, Uuid


class PartitionData(Struct):
    partition_index: Int32
    voter_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


class TopicData(Struct):
    topic_name: str
    partitions: Sequence[PartitionData]


class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Sequence[TopicData]
    leader_endpoints: Sequence[LeaderEndpoint] = since(1, default=(), ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    leader_id: Int32
    leader_epoch: Int32


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    error_code: ErrorCode
    topics: Sequence[BeginQuorumEpochResponseTopicData]
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=1, default=())
