"""AllocateProducerIds (key 67): assigns a block of producer ids to a broker."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int32, Int64


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    producer_id_start: Int64
    producer_id_len: Int32
