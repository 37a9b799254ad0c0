"""PushTelemetry (key 72): a client pushes its metrics (KIP-714)."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int8, Int32, Uuid


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
