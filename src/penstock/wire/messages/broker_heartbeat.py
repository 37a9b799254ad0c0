"""BrokerHeartbeat (key 63): a broker reports that it is alive, and requests to be unfenced or to shut down."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, tagged
from penstock.wire.types import Int32, Int64, Uuid


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Sequence[Uuid] = tagged(0, since=1, default=())
    cordoned_log_dirs: Sequence[Uuid] | None = tagged(1, since=2, default=None)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool
