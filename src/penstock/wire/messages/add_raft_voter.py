"""AddRaftVoter (key 80): adds a voter to the metadata quorum (KIP-853)."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int32, UInt16, Uuid


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[Listener]
    ack_when_committed: bool = since(1, default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
