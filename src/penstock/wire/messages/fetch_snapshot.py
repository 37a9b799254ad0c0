"""FetchSnapshot (key 59): a replica of the metadata log reads a snapshot in pieces."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, tagged
from penstock.wire.types import ZERO_UUID, Int32, Int64, Records, UInt16, Uuid


class SnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class PartitionSnapshot(Struct):
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Uuid = tagged(0, since=1, default=ZERO_UUID, ignorable=True)


class TopicSnapshot(Struct):
    name: str
    partitions: Sequence[PartitionSnapshot]


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = tagged(0, since=0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: Sequence[TopicSnapshot]


class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32
    error_code: ErrorCode
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: LeaderIdAndEpoch = tagged(0, since=0, default=LeaderIdAndEpoch())
    size: Int64
    position: Int64
    unaligned_records: Records


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str
    partitions: Sequence[FetchSnapshotResponsePartitionSnapshot]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: UInt16


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    topics: Sequence[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=1, default=())
