"""EndQuorumEpoch (key 54): a quorum leader resigns and names its preferred successors."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged, until
from penstock.wire.types import Int32, UInt16, Uuid


class ReplicaInfo(Struct):
    candidate_id: Int32
    candidate_directory_id: Uuid


class PartitionData(Struct):
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: Sequence[Int32] = until(0, default=(), ignorable=True)
    preferred_candidates: Sequence[ReplicaInfo] = since(1, default=(), ignorable=True)


class TopicData(Struct):
    topic_name: str
    partitions: Sequence[PartitionData]


class LeaderEndpoint(Struct):
    name: str
    host: str
    port: UInt16


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = None
    topics: Sequence[TopicData]
    leader_endpoints: Sequence[LeaderEndpoint] = since(1, default=(), ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    leader_id: Int32
    leader_epoch: Int32


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str
    partitions: Sequence[EndQuorumEpochResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    error_code: ErrorCode
    topics: Sequence[EndQuorumEpochResponseTopicData]
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=1, default=())
