"""DescribeTransactions (key 65): state and partitions of transactions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int16, Int32, Int64


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: Sequence[str]


class TopicData(Struct):
    topic: str
    partitions: Sequence[Int32]


class TransactionState(Struct):
    error_code: ErrorCode
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Sequence[TopicData]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    transaction_states: Sequence[TransactionState]
