"""GetTelemetrySubscriptions (key 71): the metrics that a client is requested to push (KIP-714)."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int8, Int32, Uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: Sequence[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: Sequence[str]
