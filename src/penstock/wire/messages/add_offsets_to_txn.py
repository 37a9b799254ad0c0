"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int16, Int32, Int64


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
