"""InitProducerId (key 22): a producer receives an id and epoch; the former holder of its transactional id is fenced."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, since
from penstock.wire.types import Int16, Int32, Int64


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+", unstable="6"):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable_2pc: bool = since(6, default=False)
    keep_prepared_txn: bool = since(6, default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
