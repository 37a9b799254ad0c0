"""Requests of quorum peers: checks of cluster id and voter key, in every version."""

from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import BeginEpoch, EndEpoch, Fetch, FetchSnapshot, Request, Vote
from penstock.raft.ports import SnapshotId
from penstock.raft.replicas import ReplicaKey
from penstock.server.quorum.quorum_messages import request_to_wire
from penstock.wire.codec import decode, encode
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from tests.unit.server.handlers.bare_node import NONE, finish, read_answer
from tests.unit.server.handlers.cluster import NODE, Cluster, clustered

OUTSIDER = ReplicaKey(77, b"o" * 16)


def handler_of(cluster: Cluster, request: Request) -> Any:
    handlers: dict[type, Any] = {
        Vote: cluster.quorum_requests.vote,
        BeginEpoch: cluster.quorum_requests.begin_quorum_epoch,
        EndEpoch: cluster.quorum_requests.end_quorum_epoch,
        FetchSnapshot: cluster.quorum_requests.fetch_snapshot,
    }
    return handlers[type(request)]


def requests(epoch: int, key: ReplicaKey) -> list[Request]:
    return [
        Vote(epoch, OUTSIDER, key, epoch, 1 << 40, is_pre_vote=False),
        BeginEpoch(epoch, OUTSIDER.node_id, key),
        EndEpoch(epoch, OUTSIDER.node_id, (key,)),
        FetchSnapshot(epoch, OUTSIDER, SnapshotId(0, 0), 0, 100),
    ]


async def ask(cluster: Cluster, request: Request, version: int, cluster_id: str | None = "c") -> Any:
    message: Any = request_to_wire(request, "c")[0]
    message.cluster_id = cluster_id
    return await cluster.ask(handler_of(cluster, request), message, version)


async def fetch_frame(cluster: Cluster, message: Any, version: int) -> Any:
    request = decode(FetchRequest, version, encode(message, version))
    answer = await cluster.quorum_requests.fetch(request, cluster.call(1, version))
    return read_answer(await finish(answer), 1, version)


def versions(request: Request) -> range:
    found = request_to_wire(request, "c")[0].VERSIONS
    return range(found.first, found.last + 1)


@pytest.mark.parametrize("cluster_id", [None, "another"])
def test_peers_name_this_cluster_in_every_version(cluster_id: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        epoch = cluster.quorum.raft.epoch
        for request in requests(epoch + 5, cluster.quorum.key):
            for version in versions(request):
                answer = await ask(cluster, request, version, cluster_id)
                assert answer.error_code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert cluster.quorum.raft.epoch == epoch
        (warning,) = cluster.client_warnings.remembered()
        assert "this is cluster 'c'" in warning.sentence
        assert "10.0.0.9" in warning.sentence

    clustered(story)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_of_the_metadata_log_names_this_cluster(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        last_epoch = 0 if version >= 12 else -1
        fetch = Fetch(cluster.quorum.raft.epoch, OUTSIDER, 0, last_epoch, 0, 0, 1_000)
        message: Any = request_to_wire(fetch, "another")[0]
        if version < 15:
            message.replica_id, message.replica_state = OUTSIDER.node_id, ReplicaState()
        answer = await fetch_frame(cluster, message, version)
        if version >= 7:
            assert answer.error_code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert not answer.responses
        if version >= 12:
            message.cluster_id = "c"
            answer = await fetch_frame(cluster, message, version)
            assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (NONE, NONE)

    clustered(story)


def test_a_request_to_another_voter_is_refused_in_every_version() -> None:
    async def story(cluster: Cluster) -> None:
        epoch = cluster.quorum.raft.epoch
        wrong = [ReplicaKey(NODE, b"x" * 16), ReplicaKey(NODE + 1, cluster.quorum.key.directory_id), ReplicaKey(NODE)]
        for key in wrong:
            for request in requests(epoch + 5, key)[:3]:
                for version in versions(request):
                    answer = await ask(cluster, request, version)
                    assert answer.topics[0].partitions[0].error_code is ErrorCode.INVALID_VOTER_KEY, request
        assert cluster.quorum.raft.epoch == epoch

    clustered(story)


def test_the_largest_epoch_is_refused_and_reported() -> None:
    async def story(cluster: Cluster) -> None:
        epoch = cluster.quorum.raft.epoch
        for request in requests(2**31 - 1, cluster.quorum.key):
            answer = await ask(cluster, request, versions(request)[-1])
            assert answer.topics[0].partitions[0].error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert cluster.quorum.raft.epoch == epoch
        (warning,) = cluster.client_warnings.remembered()
        assert (warning.kind, warning.times) == ("quorum epoch", 4)

    clustered(story)


@pytest.mark.parametrize("cluster_id", [None, "another"])
def test_a_voter_that_updates_itself_names_this_cluster(cluster_id: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        request = UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=cluster.quorum.raft.epoch,
            voter_id=NODE,
            voter_directory_id=cluster.quorum.key.directory_id,
            listeners=(),
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        answer = await cluster.ask(cluster.quorum_admin.update_raft_voter, request, 0)
        assert answer.error_code is ErrorCode.INCONSISTENT_CLUSTER_ID

    clustered(story)


def test_operators_may_leave_the_cluster_out_but_not_name_another() -> None:
    """Kafka's tools send no cluster id."""

    async def story(cluster: Cluster) -> None:
        for cluster_id, add, remove in (
            (None, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND),
            ("another", ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ):
            adding = AddRaftVoterRequest(
                cluster_id=cluster_id, timeout_ms=1_000, voter_id=NODE, voter_directory_id=b"x" * 16, listeners=()
            )
            leaving = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=NODE, voter_directory_id=b"x" * 16)
            assert (await cluster.ask(cluster.quorum_admin.add_raft_voter, adding, 1)).error_code is add
            assert (await cluster.ask(cluster.quorum_admin.remove_raft_voter, leaving, 0)).error_code is remove

    clustered(story)
