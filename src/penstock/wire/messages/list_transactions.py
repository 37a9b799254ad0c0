"""ListTransactions (key 66): the transactions that a broker coordinates."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, Int64


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: str | None = since(2, default=None)


class TransactionState(Struct):
    transactional_id: str
    producer_id: Int64
    transaction_state: str


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[TransactionState]
