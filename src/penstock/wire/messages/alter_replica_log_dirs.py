"""AlterReplicaLogDirs (key 34): moves replicas to another directory of the same broker."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32


class AlterReplicaLogDirTopic(Struct):
    name: str
    partitions: Sequence[Int32]


class AlterReplicaLogDir(Struct):
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    dirs: Sequence[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: ErrorCode


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32
    results: Sequence[AlterReplicaLogDirTopicResult]
