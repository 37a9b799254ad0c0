"""AddPartitionsToTxn (key 24): adds partitions to a transaction, or lets a broker verify that they were added."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import Int16, Int32, Int64


class AddPartitionsToTxnTopic(Struct):
    name: str
    partitions: Sequence[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: Sequence[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: Sequence[AddPartitionsToTxnTransaction] = since(4, default=())
    v3_and_below_transactional_id: str = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=0)
    v3_and_below_producer_epoch: Int16 = until(3, default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = until(3, default=())


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: ErrorCode


class AddPartitionsToTxnTopicResult(Struct):
    name: str
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: str
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: ErrorCode = since(4, default=ErrorCode.NONE, ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = since(4, default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = until(3, default=())
