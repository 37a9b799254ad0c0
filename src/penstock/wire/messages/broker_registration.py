"""BrokerRegistration (key 62): a broker registers with the controller and receives its broker epoch."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int16, Int32, Int64, UInt16, Uuid


class Listener(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+"):
    broker_id: Int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: Sequence[Listener]
    features: Sequence[Feature]
    rack: str | None
    is_migrating_zk_broker: bool = since(1, default=False)
    log_dirs: Sequence[Uuid] = since(2, default=(), ignorable=True)
    previous_broker_epoch: Int64 = since(3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    broker_epoch: Int64 = -1
