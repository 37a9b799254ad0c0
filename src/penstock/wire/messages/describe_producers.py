"""DescribeProducers (key 61): the producers that are active on partitions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int32, Int64


class TopicRequest(Struct):
    name: str
    partition_indexes: Sequence[Int32]


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    topics: Sequence[TopicRequest]


class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None = None
    active_producers: Sequence[ProducerState]


class TopicResponse(Struct):
    name: str
    partitions: Sequence[PartitionResponse]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: Sequence[TopicResponse]
