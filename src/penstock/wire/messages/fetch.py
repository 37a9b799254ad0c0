"""Fetch (key 1): a consumer or a follower requests record batches from an offset on, and may wait for them."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged, until
from penstock.wire.types import ZERO_UUID, Int8, Int32, Int64, Records, Uuid


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = tagged(1, since=18, default=0x7FFFFFFFFFFFFFFF, ignorable=True)


class FetchTopic(Struct):
    topic: str = until(12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[FetchPartition]


class ForgottenTopic(Struct):
    topic: str = until(12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[Int32]


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = tagged(0, since=12, default=None, ignorable=True)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15, default=ReplicaState())
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Sequence[FetchTopic]
    forgotten_topics_data: Sequence[ForgottenTopic] = since(7, default=())
    rack_id: str = since(11, default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = tagged(0, since=12, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = tagged(1, since=12, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = tagged(2, since=12, default=SnapshotId())
    aborted_transactions: Sequence[AbortedTransaction] | None
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: str = until(12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Sequence[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32
    error_code: ErrorCode = since(7, default=ErrorCode.NONE, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Sequence[FetchableTopicResponse]
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=16, default=())
