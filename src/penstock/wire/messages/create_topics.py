"""CreateTopics (key 19): creates topics, with partitions, placement and settings."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged
from penstock.wire.types import ZERO_UUID, Int8, Int16, Int32, Uuid


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: Sequence[Int32]


class CreatableTopicConfig(Struct):
    name: str
    value: str | None


class CreatableTopic(Struct):
    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: Sequence[CreatableReplicaAssignment]
    configs: Sequence[CreatableTopicConfig]


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    topics: Sequence[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopicConfigs(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool


class CreatableTopicResult(Struct):
    name: str
    topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
    error_code: ErrorCode
    error_message: str | None
    topic_config_error_code: ErrorCode = tagged(0, since=5, default=ErrorCode.NONE, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = since(5, default=(), ignorable=True)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32
    topics: Sequence[CreatableTopicResult]
