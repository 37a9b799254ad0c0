"""RemoveRaftVoter (key 81): removes a voter from the metadata quorum."""

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.types import Int32, Uuid


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
