"""ShareAcknowledge (key 79): a share consumer accepts, releases or rejects records."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32, Int64, Uuid


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Sequence[Int8]


class AcknowledgePartition(Struct):
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


class AcknowledgeTopic(Struct):
    topic_id: Uuid
    partitions: Sequence[AcknowledgePartition]


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: bool = since(2, default=False)
    topics: Sequence[AcknowledgeTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class PartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = since(2, default=0, ignorable=True)
    responses: Sequence[ShareAcknowledgeTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]
