"""UpdateRaftVoter (key 82): a voter reports its new addresses or versions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, tagged
from penstock.wire.types import Int16, Int32, UInt16, Uuid


class Listener(Struct):
    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+"):
    cluster_id: str | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[Listener]
    k_raft_version_feature: KRaftVersionFeature


class CurrentLeader(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    current_leader: CurrentLeader = tagged(0, since=0, default=CurrentLeader())
