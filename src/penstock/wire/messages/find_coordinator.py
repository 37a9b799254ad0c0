"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or a share partition."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import Int8, Int32


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: str = until(3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Sequence[str] = since(4, default=())


class Coordinator(Struct):
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: ErrorCode
    error_message: str | None


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: ErrorCode = until(3, default=ErrorCode.NONE)
    error_message: str | None = since(1, default="", until=3, ignorable=True)
    node_id: Int32 = until(3, default=0)
    host: str = until(3, default="")
    port: Int32 = until(3, default=0)
    coordinators: Sequence[Coordinator] = since(4, default=())
