"""Vote (key 52): a candidate requests the vote, or the pre-vote, of a voter of the metadata quorum."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged
from penstock.wire.types import ZERO_UUID, Int32, Int64, UInt16, Uuid


class PartitionData(Struct):
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: bool = since(2, default=False)


class TopicData(Struct):
    topic_name: str
    partitions: Sequence[PartitionData]


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Sequence[TopicData]


class VoteResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: bool


class VoteResponseTopicData(Struct):
    topic_name: str
    partitions: Sequence[VoteResponsePartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    error_code: ErrorCode
    topics: Sequence[VoteResponseTopicData]
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=1, default=())
