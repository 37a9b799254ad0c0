"""Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot: what replicas of the metadata quorum ask each other.

Serves    Vote 0–2, BeginQuorumEpoch 0–1, EndQuorumEpoch 0–1, FetchSnapshot 0–1, Fetch 4–18 of `__cluster_metadata`; on
          listeners of controllers only.
Answers   INCONSISTENT_CLUSTER_ID to another cluster; UNKNOWN_TOPIC_OR_PARTITION to whoever means another log;
          INVALID_VOTER_KEY to Vote, BeginQuorumEpoch and EndQuorumEpoch for another voter; UNKNOWN_LEADER_EPOCH to an
          epoch too far above this replica's. A fetch waits for news up to its time.
Departs   from Kafka 4.3: a request needs the cluster id, so that Fetch below 12 is refused; Vote 0 and BeginQuorumEpoch
          0 are refused because they name no voter. An epoch that is more than 1,000,000 ahead is refused.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from penstock.model.errors import ErrorCode
from penstock.model.ports import Clock
from penstock.server.complaints import Complaints
from penstock.server.quorum_messages import FromPeer, NotOurs, OtherCluster, reply_to_wire, request_from_wire
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.serving import Answer, Buffers, Call, serves, serves_overlapping
from penstock.wire.declare import Response
from penstock.wire.headers import response_frame
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.wire.messages.vote import VoteRequest, VoteResponse

R = TypeVar("R", bound=Response)


class Needs(Protocol):
    """A node as these handlers see it."""

    clock: Clock
    quorum: QuorumRunner
    cluster_id: str
    complaints: Complaints


def node_of(call: Call) -> Needs:
    """The node that was called."""
    return cast("Needs", call.node)


@serves(VoteRequest)
async def vote(request: VoteRequest, call: Call) -> VoteResponse:
    """Gives a vote, or says whether it would."""
    return await _ask(request, call, lambda code: VoteResponse(error_code=code, topics=()))


@serves(BeginQuorumEpochRequest)
async def begin_quorum_epoch(request: BeginQuorumEpochRequest, call: Call) -> BeginQuorumEpochResponse:
    """Hears who leads."""
    return await _ask(request, call, lambda code: BeginQuorumEpochResponse(error_code=code, topics=()))


@serves(EndQuorumEpochRequest)
async def end_quorum_epoch(request: EndQuorumEpochRequest, call: Call) -> EndQuorumEpochResponse:
    """Hears that the leader leads no longer."""
    return await _ask(request, call, lambda code: EndQuorumEpochResponse(error_code=code, topics=()))


@serves(FetchSnapshotRequest)
async def fetch_snapshot(request: FetchSnapshotRequest, call: Call) -> FetchSnapshotResponse:
    """Hands a piece of a snapshot out."""

    def refused(code: ErrorCode) -> FetchSnapshotResponse:
        return FetchSnapshotResponse(throttle_time_ms=0, error_code=code, topics=())

    return await _ask(request, call, refused)


@serves_overlapping(FetchRequest)
async def fetch(request: FetchRequest, call: Call) -> Answer:
    """Hands records out, now or when there are any; requests behind it do not wait."""
    if request.cluster_id == node_of(call).cluster_id:
        call.client.recognize()
    return _fetch(request, call)


async def _fetch(request: FetchRequest, call: Call) -> Buffers:
    def refused(code: ErrorCode) -> FetchResponse:
        return FetchResponse(throttle_time_ms=0, error_code=code, responses=())

    return [response_frame(await _ask(request, call, refused), call.version, call.correlation_id)]


async def _ask(request: FromPeer, call: Call, refused: Callable[[ErrorCode], R]) -> R:
    node = node_of(call)
    try:
        asked = request_from_wire(request, node.cluster_id)
    except NotOurs as error:
        return refused(error.code)
    except OtherCluster as error:
        warn_of_cluster(call, type(request).__name__, error)
        return refused(error.code)
    call.client.recognize()
    return cast("R", reply_to_wire(await node.quorum.ask(asked), type(request)))


def warn_of_cluster(call: Call, what: str, error: OtherCluster) -> None:
    """Logs a peer of another cluster, not more often than other warnings of its kind."""
    node_of(call).complaints.say(
        "quorum cluster",
        f"Refused a {what} from {call.peer}: {error}. Check controller.quorum.voters and "
        "controller.quorum.bootstrap.servers of the node there.",
    )
