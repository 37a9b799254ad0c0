"""CreatePartitions (key 37): adds partitions to topics."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32


class CreatePartitionsAssignment(Struct):
    broker_ids: Sequence[Int32]


class CreatePartitionsTopic(Struct):
    name: str
    count: Int32
    assignments: Sequence[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool


class CreatePartitionsTopicResult(Struct):
    name: str
    error_code: ErrorCode
    error_message: str | None = None


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: Sequence[CreatePartitionsTopicResult]
