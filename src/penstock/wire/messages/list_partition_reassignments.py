"""ListPartitionReassignments (key 46): the partitions that are being reassigned."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32


class ListPartitionReassignmentsTopics(Struct):
    name: str
    partition_indexes: Sequence[Int32]


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32
    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


class OngoingTopicReassignment(Struct):
    name: str
    partitions: Sequence[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]
