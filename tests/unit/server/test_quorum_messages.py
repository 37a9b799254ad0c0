"""Messages between replicas keep their content on the wire, in every version that can carry it."""

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.replicas import ReplicaKey
from penstock.server.quorum.quorum_messages import (
    FromPeer,
    NotOurs,
    OtherCluster,
    reply_from_wire,
    reply_to_wire,
    request_from_wire,
    request_to_wire,
)
from penstock.wire import codec
from penstock.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.messages.vote import TopicData, VoteRequest, VoteResponse

ONE, TWO = ReplicaKey(1, b"1" * 16), ReplicaKey(2, b"2" * 16)
REQUESTS: list[Request] = [
    Vote(7, ONE, TWO, 6, 120, is_pre_vote=True),
    Vote(7, ONE, TWO, 6, 120, is_pre_vote=False),
    BeginEpoch(7, 1, TWO),
    EndEpoch(7, 1, (TWO, ONE)),
    Fetch(7, TWO, 120, 6, 100, 500, 8_000),
    FetchSnapshot(7, TWO, SnapshotId(100, 6), 4_096, 1_000),
]
REPLIES: list[tuple[Reply, type]] = [
    (VoteReply(ErrorCode.NONE, 7, -1, is_granted=True), VoteRequest),
    (VoteReply(ErrorCode.FENCED_LEADER_EPOCH, 8, 3, is_granted=False), VoteRequest),
    (EpochReply(ErrorCode.NONE, 7, 1), BeginQuorumEpochRequest),
    (EpochReply(ErrorCode.FENCED_LEADER_EPOCH, 9, 2), EndQuorumEpochRequest),
    (FetchReply(ErrorCode.NONE, 7, 1, 110, 5, b"records"), FetchRequest),
    (FetchReply(ErrorCode.NONE, 7, 1, 110, 5, b"", EpochEnd(5, 90)), FetchRequest),
    (FetchReply(ErrorCode.NONE, 7, 1, 110, 5, b"", None, SnapshotId(100, 6)), FetchRequest),
    (FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 8, 2, -1, -1, b""), FetchRequest),
    (FetchSnapshotReply(ErrorCode.NONE, 7, 1, SnapshotId(100, 6), 9_000, 4_096, b"piece"), FetchSnapshotRequest),
    (
        FetchSnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND, 7, 1, SnapshotId(100, 6), 0, 0, b""),
        FetchSnapshotRequest,
    ),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_come_back(request_: Request) -> None:
    message, _ = request_to_wire(request_, "cluster")
    version = message.VERSIONS.last
    decoded = codec.decode(type(message), version, bytes(codec.encode(message, version)))
    assert isinstance(decoded, FromPeer)
    assert request_from_wire(decoded, "cluster") == request_


@pytest.mark.parametrize(("reply", "kind"), REPLIES)
def test_replies_come_back(reply: Reply, kind: type) -> None:
    message = reply_to_wire(reply, kind)
    version = message.VERSIONS.last
    decoded = codec.decode(type(message), version, bytes(codec.encode(message, version)))
    assert reply_from_wire(decoded) == reply


@pytest.mark.parametrize("request_", [REQUESTS[1], REQUESTS[2]], ids=["Vote", "BeginQuorumEpoch"])
def test_versions_that_name_no_voter_are_addressed_to_no_replica(request_: Request) -> None:
    message, _ = request_to_wire(request_, "cluster")
    decoded = codec.decode(type(message), 0, bytes(codec.encode(message, 0)))
    assert isinstance(decoded, FromPeer)
    found = request_from_wire(decoded, "cluster")
    assert isinstance(found, Vote | BeginEpoch)
    assert found.voter == ReplicaKey(-1)


@pytest.mark.parametrize("named", [None, "", "another"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_without_the_id_of_this_cluster_is_refused(request_: Request, named: str | None) -> None:
    message, _ = request_to_wire(request_, "cluster")
    assert isinstance(message, FromPeer)
    message.cluster_id = named
    with pytest.raises(OtherCluster, match="'cluster'") as refused:
        request_from_wire(message, "cluster")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_another_log_is_refused() -> None:
    with pytest.raises(NotOurs, match="__cluster_metadata"):
        request_from_wire(VoteRequest(cluster_id="c", topics=[TopicData(topic_name="orders", partitions=[])]), "c")
    with pytest.raises(NotOurs):
        request_from_wire(VoteRequest(cluster_id="c", topics=[]), "c")


def test_an_error_for_all_of_a_request_is_no_answer() -> None:
    refused = VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, topics=())
    with pytest.raises(NotOurs, match="INCONSISTENT_CLUSTER_ID"):
        reply_from_wire(refused)
