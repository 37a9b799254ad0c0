"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter: voters of the metadata quorum, and their changes.

Serves    DescribeQuorum 0–2, AddRaftVoter 0–1, RemoveRaftVoter 0; UpdateRaftVoter 0 on controller listeners.
Answers   NOT_LEADER_OR_FOLLOWER if this node does not lead the quorum, with the leader's id in DescribeQuorum and
          UpdateRaftVoter; INCONSISTENT_CLUSTER_ID to another cluster. A change of voters is answered once it is
          committed, unless AddRaftVoter 1 sets `ack_when_committed` to false. AddRaftVoter and RemoveRaftVoter come
          from operators and may omit the cluster id, as Kafka's tools do; UpdateRaftVoter comes from a voter and needs
          it.
Departs   from Kafka 4.3: the leader does not query the versions that a new voter supports before adding it.
"""

from collections.abc import Sequence
from typing import cast

from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ErrorCode
from penstock.model.ports import Clock
from penstock.raft.leader import Leader
from penstock.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VotersReply
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.serving import Call, serves
from penstock.server.handlers.cluster.quorum import warn_of_cluster
from penstock.server.quorum.quorum_messages import PARTITION, OtherCluster, check_cluster
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.wire.messages import describe_quorum as describe_messages
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.wire.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse


class QuorumAdminHandler:
    """Describes the metadata quorum and changes its voters."""

    def __init__(self, quorum: QuorumRunner, cluster_id: str, client_warnings: ClientWarnings, clock: Clock) -> None:
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._client_warnings = client_warnings
        self._clock = clock

    @serves(AddRaftVoterRequest, is_for_controller=True)
    async def add_raft_voter(self, request: AddRaftVoterRequest, call: Call) -> AddRaftVoterResponse:
        """Adds a voter to the quorum."""
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        voter = Voter(key, tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners))
        reply = await self._change(call.peer, request.cluster_id, AddVoter(voter, request.ack_when_committed))
        return AddRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, error_message=reply.message or None)

    @serves(RemoveRaftVoterRequest, is_for_controller=True)
    async def remove_raft_voter(self, request: RemoveRaftVoterRequest, call: Call) -> RemoveRaftVoterResponse:
        """Removes a voter from the quorum."""
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        reply = await self._change(call.peer, request.cluster_id, RemoveVoter(key))
        return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, error_message=reply.message or None)

    @serves(UpdateRaftVoterRequest)
    async def update_raft_voter(self, request: UpdateRaftVoterRequest, call: Call) -> UpdateRaftVoterResponse:
        """Updates a voter's listeners and supported versions."""
        feature = request.k_raft_version_feature
        voter = Voter(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in request.listeners),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        quorum = self._quorum
        reply = await self._change(call.peer, request.cluster_id, UpdateVoter(voter))
        endpoint = quorum.endpoint_of(reply.leader_id) or Endpoint("", "", 0)
        leader = CurrentLeader(
            leader_id=reply.leader_id, leader_epoch=reply.epoch, host=endpoint.host, port=endpoint.port
        )
        return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=reply.error, current_leader=leader)

    @serves(DescribeQuorumRequest, is_for_controller=True)
    async def describe_quorum(self, request: DescribeQuorumRequest, _call: Call) -> DescribeQuorumResponse:
        """Describes leader, voters and observers, with log end offsets that only the leader holds."""
        quorum = self._quorum
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
            current_voters=() if leader is None else _voters(quorum, leader, self._clock),
            observers=() if leader is None else _observers(quorum, leader, self._clock),
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

    async def _change(
        self, peer: str, cluster_id: str | None, request: AddVoter | RemoveVoter | UpdateVoter
    ) -> VotersReply:
        quorum = self._quorum
        if cluster_id is not None or isinstance(request, UpdateVoter):
            try:
                check_cluster(cluster_id, self._cluster_id)
            except OtherCluster as error:
                warn_of_cluster(self._client_warnings, peer, type(request).__name__, error)
                message = "This is another cluster; check the cluster id."
                return VotersReply(error.code, quorum.raft.epoch, quorum.raft.leader_id, message)
        return cast("VotersReply", await quorum.ask(request))


def _voters(quorum: QuorumRunner, leader: Leader, clock: Clock) -> Sequence[describe_messages.ReplicaState]:
    voters = quorum.raft.voters
    return [_state(quorum, leader, voters.key_of(node_id), clock) for node_id in voters.ids]


def _observers(quorum: QuorumRunner, leader: Leader, clock: Clock) -> Sequence[describe_messages.ReplicaState]:
    """Observers, without keys that voters had before their directory ids were known."""
    voters = quorum.raft.voters
    former = [ReplicaKey(node_id) for node_id in voters.ids]
    return [
        _state(quorum, leader, key, clock) for key in sorted(leader.progress) if key not in voters and key not in former
    ]


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
