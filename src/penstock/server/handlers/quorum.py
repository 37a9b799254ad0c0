"""The metadata quorum: what replicas ask each other, and what operators ask the leader.

Serves    Vote 0–2, BeginQuorumEpoch 0–1, EndQuorumEpoch 0–1, FetchSnapshot 0–1, Fetch 4–18 of `__cluster_metadata`,
          DescribeQuorum 0–2, AddRaftVoter 0–1, RemoveRaftVoter 0, UpdateRaftVoter 0; on listeners of controllers only.
Answers   INCONSISTENT_CLUSTER_ID to another cluster; UNKNOWN_TOPIC_OR_PARTITION to whoever means another log;
          NOT_LEADER_OR_FOLLOWER with the leader's id to what only the leader can do. A fetch waits for news up to its
          time, a change of voters until it is committed.
Departs   from Kafka 4.3: a new voter is not asked what it supports before it is added.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ports import Clock
from penstock.raft.leader import Leader
from penstock.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VotersReply
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter
from penstock.server.quorum_messages import PARTITION, NotOurs, reply_to_wire, request_from_wire
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.serving import Answer, Buffers, Call, serves, serves_frames
from penstock.wire.codec import decode_request
from penstock.wire.declare import Response
from penstock.wire.headers import response_frame
from penstock.wire.messages import describe_quorum as describe_messages
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.wire.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse
from penstock.wire.messages.vote import VoteRequest, VoteResponse

R = TypeVar("R", bound=Response)


class Needs(Protocol):
    """A node as these handlers see it."""

    clock: Clock
    quorum: QuorumRunner
    cluster_id: str


def node_of(call: Call) -> Needs:
    """The node that was called."""
    return cast("Needs", call.node)


# --- replicas ---------------------------------------------------------------------------------------------------------


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


@serves_frames(FetchRequest)
async def fetch(call: Call, frame: memoryview, position: int) -> Answer:
    """Hands records out, now or when there are any; requests behind it do not wait."""
    return _fetch(decode_request(FetchRequest, call.version, frame, position), call)


async def _fetch(request: FetchRequest, call: Call) -> Buffers:
    def refused(code: ErrorCode) -> FetchResponse:
        return FetchResponse(throttle_time_ms=0, error_code=code, responses=())

    return [response_frame(await _ask(request, call, refused), call.version, call.correlation_id)]


Asking: TypeAlias = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchSnapshotRequest | FetchRequest


async def _ask(request: Asking, call: Call, refused: Callable[[ErrorCode], R]) -> R:
    node = node_of(call)
    if _is_strange(request.cluster_id, node):
        return refused(ErrorCode.INCONSISTENT_CLUSTER_ID)
    try:
        asked = request_from_wire(request, node.quorum.key.node_id)
    except NotOurs as error:
        return refused(error.code)
    return cast("R", reply_to_wire(await node.quorum.ask(asked), type(request)))


def _is_strange(cluster_id: str | None, node: Needs) -> bool:
    return cluster_id is not None and cluster_id != node.cluster_id


# --- operators --------------------------------------------------------------------------------------------------------


@serves(AddRaftVoterRequest)
async def add_raft_voter(request: AddRaftVoterRequest, call: Call) -> AddRaftVoterResponse:
    """The quorum gains a voter."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    voter = Voter(key, tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners))
    reply = await _change(call, request.cluster_id, AddVoter(voter, request.ack_when_committed))
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, error_message=reply.message or None)


@serves(RemoveRaftVoterRequest)
async def remove_raft_voter(request: RemoveRaftVoterRequest, call: Call) -> RemoveRaftVoterResponse:
    """The quorum loses a voter."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    reply = await _change(call, request.cluster_id, RemoveVoter(key))
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, error_message=reply.message or None)


@serves(UpdateRaftVoterRequest)
async def update_raft_voter(request: UpdateRaftVoterRequest, call: Call) -> UpdateRaftVoterResponse:
    """A voter listens elsewhere, or understands more."""
    feature = request.k_raft_version_feature
    voter = Voter(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners),
        feature.min_supported_version,
        feature.max_supported_version,
    )
    quorum = node_of(call).quorum
    reply = await _change(call, request.cluster_id, UpdateVoter(voter))
    endpoint = quorum.endpoint_of(reply.leader_id) or Endpoint("", "", 0)
    leader = CurrentLeader(leader_id=reply.leader_id, leader_epoch=reply.epoch, host=endpoint.host, port=endpoint.port)
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, current_leader=leader)


async def _change(call: Call, cluster_id: str | None, request: AddVoter | RemoveVoter | UpdateVoter) -> VotersReply:
    quorum = node_of(call).quorum
    if _is_strange(cluster_id, node_of(call)):
        message = "This is another cluster; check the cluster id."
        return VotersReply(ErrorCode.INCONSISTENT_CLUSTER_ID, quorum.raft.epoch, quorum.raft.leader_id, message)
    return cast("VotersReply", await quorum.ask(request))


@serves(DescribeQuorumRequest)
async def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    """Who leads, who votes, who observes, and how far each is; the leader knows."""
    quorum = node_of(call).quorum
    if [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics] != [
        (METADATA_TOPIC, [PARTITION])
    ]:
        return DescribeQuorumResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topics=())
    raft = quorum.raft
    leader = raft.leader
    part = describe_messages.DescribeQuorumResponsePartitionData(
        partition_index=PARTITION,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else ErrorCode.NONE,
        leader_id=raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=-1 if leader is None else raft.high_watermark,
        current_voters=() if leader is None else _voters(quorum, leader, node_of(call).clock),
        observers=() if leader is None else _observers(quorum, leader, node_of(call).clock),
    )
    topic = describe_messages.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    nodes = [
        describe_messages.Node(
            node_id=voter.key.node_id,
            listeners=[describe_messages.Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
        )
        for voter in raft.voters.by_id.values()
    ]
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=[topic], nodes=nodes)


def _voters(quorum: QuorumRunner, leader: Leader, clock: Clock) -> Sequence[describe_messages.ReplicaState]:
    voters = quorum.raft.voters
    return [_state(quorum, leader, voters.key_of(node_id), clock) for node_id in voters.ids]


def _observers(quorum: QuorumRunner, leader: Leader, clock: Clock) -> Sequence[describe_messages.ReplicaState]:
    voters = quorum.raft.voters
    return [_state(quorum, leader, key, clock) for key in sorted(leader.progress) if key not in voters]


def _state(quorum: QuorumRunner, leader: Leader, key: ReplicaKey, clock: Clock) -> describe_messages.ReplicaState:
    now_ms = clock.wall_ms()
    if key == quorum.key:
        return describe_messages.ReplicaState(
            replica_id=key.node_id,
            replica_directory_id=key.directory_id,
            log_end_offset=quorum.log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
    progress = leader.progress.get(key)
    ahead_ms = now_ms - clock.monotonic_ms()
    return describe_messages.ReplicaState(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=-1 if progress is None else progress.end_offset,
        last_fetch_timestamp=-1 if progress is None else ahead_ms + progress.fetched_at,
        last_caught_up_timestamp=-1
        if progress is None or progress.caught_up_at < 0
        else ahead_ms + progress.caught_up_at,
    )
