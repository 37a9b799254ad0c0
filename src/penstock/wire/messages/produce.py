"""Produce (key 0): a producer sends record batches, one per partition."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, tagged, until
from penstock.wire.types import ZERO_UUID, Int16, Int32, Int64, Records, Uuid


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: str = until(12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_data: Sequence[PartitionProduceData]


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: Sequence[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: ErrorCode
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Sequence[BatchIndexAndErrorMessage] = since(8, default=(), ignorable=True)
    error_message: str | None = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, default=LeaderIdAndEpoch())


class TopicProduceResponse(Struct):
    name: str = until(12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_responses: Sequence[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: Sequence[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: Sequence[NodeEndpoint] = tagged(0, since=10, default=())
