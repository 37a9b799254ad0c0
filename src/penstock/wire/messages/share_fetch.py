"""ShareFetch (key 78): a share consumer acquires records, and may acknowledge earlier ones."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int16, Int32, Int64, Records, Uuid


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Sequence[Int8]


class FetchPartition(Struct):
    partition_index: Int32
    acknowledgement_batches: Sequence[AcknowledgementBatch]


class FetchTopic(Struct):
    topic_id: Uuid
    partitions: Sequence[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: Uuid
    partitions: Sequence[Int32]


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since(2, default=0, ignorable=True)
    is_renew_ack: bool = since(2, default=False)
    topics: Sequence[FetchTopic]
    forgotten_topics_data: Sequence[ForgottenTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class PartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    error_message: str | None = None
    acknowledge_error_code: ErrorCode
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch
    records: Records | None
    acquired_records: Sequence[AcquiredRecords]


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32
    responses: Sequence[ShareFetchableTopicResponse]
    node_endpoints: Sequence[NodeEndpoint]
