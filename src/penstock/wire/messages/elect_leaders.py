"""ElectLeaders (key 43): elects the preferred leader of partitions, or any live replica."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32


class TopicPartitions(Struct):
    topic: str
    partitions: Sequence[Int32]


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = since(1, default=0)
    topic_partitions: Sequence[TopicPartitions] | None
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32
    error_code: ErrorCode
    error_message: str | None


class ReplicaElectionResult(Struct):
    topic: str
    partition_result: Sequence[PartitionResult]


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    error_code: ErrorCode = since(1, default=ErrorCode.NONE)
    replica_election_results: Sequence[ReplicaElectionResult]
