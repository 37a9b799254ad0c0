"""ControllerRegistration (key 70): a controller registers with the active controller."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int16, Int32, UInt16, Uuid


class Listener(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: Sequence[Listener]
    features: Sequence[Feature]


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
