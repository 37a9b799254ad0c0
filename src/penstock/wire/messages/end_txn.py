"""EndTxn (key 26): commits or aborts a transaction."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, since
from penstock.wire.types import Int16, Int32, Int64


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
