"""AssignReplicasToDirs (key 73): a broker reports the directory of each of its replicas."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Int64, Uuid


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class DirectoryData(Struct):
    id: Uuid
    topics: Sequence[TopicData]


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: Sequence[DirectoryData]


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid
    partitions: Sequence[AssignReplicasToDirsResponsePartitionData]


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid
    topics: Sequence[AssignReplicasToDirsResponseTopicData]


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    directories: Sequence[AssignReplicasToDirsResponseDirectoryData]
