"""UnregisterBroker (key 64): removes a broker from the cluster permanently."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int32


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
