"""Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot: requests between replicas of the metadata quorum.

Serves    Vote 0–2, BeginQuorumEpoch 0–1, EndQuorumEpoch 0–1, FetchSnapshot 0–1, Fetch 4–18 of `__cluster_metadata`; on
          controller listeners only.
Answers   INCONSISTENT_CLUSTER_ID to a replica of another cluster; UNKNOWN_TOPIC_OR_PARTITION to a request for another
          log; INVALID_VOTER_KEY to Vote, BeginQuorumEpoch and EndQuorumEpoch for another voter; UNKNOWN_LEADER_EPOCH to
          an epoch too far above this replica's. A fetch waits up to `max_wait_ms` for records or a higher high
          watermark.
Departs   from Kafka 4.3: a request needs the cluster id, so Fetch below version 12 is refused; Vote 0 and
          BeginQuorumEpoch 0 are refused because they name no voter. An epoch more than 1,000,000 above this replica's
          is refused.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from penstock.model.errors import ErrorCode
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.serving import Answer, Buffers, Call, serves, serves_overlapping
from penstock.server.quorum.quorum_messages import FromPeer, NotOurs, OtherCluster, reply_to_wire, request_from_wire
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.wire.declare import Response
from penstock.wire.headers import response_frame
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.wire.messages.vote import VoteRequest, VoteResponse

R = TypeVar("R", bound=Response)


class QuorumHandler:
    """Passes requests of the quorum's replicas to this node's replica."""

    def __init__(self, quorum: QuorumRunner, cluster_id: str, client_warnings: ClientWarnings) -> None:
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._client_warnings = client_warnings

    @serves(VoteRequest)
    async def vote(self, request: VoteRequest, call: Call) -> VoteResponse:
        """Answers a vote or pre-vote."""
        return await self._ask(request, call, lambda code: VoteResponse(error_code=code, topics=()))

    @serves(BeginQuorumEpochRequest)
    async def begin_quorum_epoch(self, request: BeginQuorumEpochRequest, call: Call) -> BeginQuorumEpochResponse:
        """Receives the leader of an epoch."""
        return await self._ask(request, call, lambda code: BeginQuorumEpochResponse(error_code=code, topics=()))

    @serves(EndQuorumEpochRequest)
    async def end_quorum_epoch(self, request: EndQuorumEpochRequest, call: Call) -> EndQuorumEpochResponse:
        """Receives a leader's resignation."""
        return await self._ask(request, call, lambda code: EndQuorumEpochResponse(error_code=code, topics=()))

    @serves(FetchSnapshotRequest)
    async def fetch_snapshot(self, request: FetchSnapshotRequest, call: Call) -> FetchSnapshotResponse:
        """Returns a piece of a snapshot."""

        def refused(code: ErrorCode) -> FetchSnapshotResponse:
            return FetchSnapshotResponse(throttle_time_ms=0, error_code=code, topics=())

        return await self._ask(request, call, refused)

    @serves_overlapping(FetchRequest)
    async def fetch(self, request: FetchRequest, call: Call) -> Answer:
        """Returns records, now or when there are any; later requests do not wait."""
        if request.cluster_id == self._cluster_id:
            call.client.recognize()
        return self._fetch(request, call)

    async def _fetch(self, request: FetchRequest, call: Call) -> Buffers:
        def refused(code: ErrorCode) -> FetchResponse:
            return FetchResponse(throttle_time_ms=0, error_code=code, responses=())

        return [response_frame(await self._ask(request, call, refused), call.version, call.correlation_id)]

    async def _ask(self, request: FromPeer, call: Call, refused: Callable[[ErrorCode], R]) -> R:
        try:
            asked = request_from_wire(request, self._cluster_id)
        except NotOurs as error:
            return refused(error.code)
        except OtherCluster as error:
            warn_of_cluster(self._client_warnings, call.peer, type(request).__name__, error)
            return refused(error.code)
        call.client.recognize()
        return cast("R", reply_to_wire(await self._quorum.ask(asked), type(request)))


def warn_of_cluster(client_warnings: ClientWarnings, peer: str, what: str, error: OtherCluster) -> None:
    """Logs a rate-limited warning about a peer of another cluster."""
    client_warnings.say(
        "quorum cluster",
        f"Refused a {what} from {peer}: {error}. Check controller.quorum.voters and "
        "controller.quorum.bootstrap.servers of the node there.",
    )
