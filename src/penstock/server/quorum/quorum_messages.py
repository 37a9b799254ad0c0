"""The quorum's messages on the wire: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot, both ways.

All of them can carry many partitions; there is one, `__cluster_metadata-0`. A message about another one is refused with
`NotOurs`, a request without this cluster's id with `OtherCluster`. Offsets and epochs that are absent on the wire are
-1.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Reply,
    Vote,
    VoteReply,
)
from penstock.raft.messages import Request as QuorumRequest
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.replicas import ReplicaKey
from penstock.server.quorum.metadata_log import METADATA_TOPIC_ID
from penstock.wire.declare import Request, Response
from penstock.wire.messages import begin_quorum_epoch as begin_messages
from penstock.wire.messages import end_quorum_epoch as end_messages
from penstock.wire.messages import fetch as fetch_messages
from penstock.wire.messages import fetch_snapshot as snapshot_messages
from penstock.wire.messages import vote as vote_messages

PARTITION: Final = 0
Part = TypeVar("Part")


class NotOurs(ProtocolError):
    """A message about another log than the metadata log."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OtherCluster(ProtocolError):
    """A request with the id of another cluster, or with none."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


def request_to_wire(request: QuorumRequest, cluster_id: str) -> tuple[Request, type[Response]]:
    """Encodes a request of the raft core; returns it with the class of its response."""
    match request:
        case Vote():
            return _vote(request, cluster_id), vote_messages.VoteResponse
        case BeginEpoch():
            return _begin(request, cluster_id), begin_messages.BeginQuorumEpochResponse
        case EndEpoch():
            return _end(request, cluster_id), end_messages.EndQuorumEpochResponse
        case Fetch():
            return _fetch(request, cluster_id), fetch_messages.FetchResponse
        case FetchSnapshot():
            return _fetch_snapshot(request, cluster_id), snapshot_messages.FetchSnapshotResponse
    raise TypeError(f"{request} is not asked by a replica")


def _vote(vote: Vote, cluster_id: str) -> vote_messages.VoteRequest:
    part = vote_messages.PartitionData(
        partition_index=PARTITION,
        replica_epoch=vote.epoch,
        replica_id=vote.candidate.node_id,
        replica_directory_id=vote.candidate.directory_id,
        voter_directory_id=vote.voter.directory_id,
        last_offset_epoch=vote.last_epoch,
        last_offset=vote.end_offset,
        pre_vote=vote.is_pre_vote,
    )
    topics = [vote_messages.TopicData(topic_name=METADATA_TOPIC, partitions=[part])]
    return vote_messages.VoteRequest(cluster_id=cluster_id, voter_id=vote.voter.node_id, topics=topics)


def _begin(begin: BeginEpoch, cluster_id: str) -> begin_messages.BeginQuorumEpochRequest:
    part = begin_messages.PartitionData(
        partition_index=PARTITION,
        voter_directory_id=begin.voter.directory_id,
        leader_id=begin.leader_id,
        leader_epoch=begin.epoch,
    )
    topics = [begin_messages.TopicData(topic_name=METADATA_TOPIC, partitions=[part])]
    return begin_messages.BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=begin.voter.node_id, topics=topics)


def _end(end: EndEpoch, cluster_id: str) -> end_messages.EndQuorumEpochRequest:
    part = end_messages.PartitionData(
        partition_index=PARTITION,
        leader_id=end.leader_id,
        leader_epoch=end.epoch,
        preferred_successors=[key.node_id for key in end.successors],
        preferred_candidates=[
            end_messages.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
            for key in end.successors
        ],
    )
    topics = [end_messages.TopicData(topic_name=METADATA_TOPIC, partitions=[part])]
    return end_messages.EndQuorumEpochRequest(cluster_id=cluster_id, topics=topics)


def _fetch(fetch: Fetch, cluster_id: str) -> fetch_messages.FetchRequest:
    part = fetch_messages.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=fetch.epoch,
        fetch_offset=fetch.offset,
        last_fetched_epoch=fetch.last_epoch,
        partition_max_bytes=fetch.bytes_max,
        replica_directory_id=fetch.replica.directory_id,
        high_watermark=fetch.high_watermark,
    )
    topic = fetch_messages.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[part])
    return fetch_messages.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch_messages.ReplicaState(replica_id=fetch.replica.node_id),
        max_wait_ms=fetch.max_wait_ms,
        min_bytes=0,
        max_bytes=fetch.bytes_max,
        topics=[topic],
    )


def _fetch_snapshot(fetch: FetchSnapshot, cluster_id: str) -> snapshot_messages.FetchSnapshotRequest:
    part = snapshot_messages.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=fetch.epoch,
        snapshot_id=snapshot_messages.SnapshotId(end_offset=fetch.snapshot.end_offset, epoch=fetch.snapshot.epoch),
        position=fetch.position,
        replica_directory_id=fetch.replica.directory_id,
    )
    return snapshot_messages.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=fetch.replica.node_id,
        max_bytes=fetch.bytes_max,
        topics=[snapshot_messages.TopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
    )


# --- incoming requests ------------------------------------------------------------------------------------------------


FromPeer: TypeAlias = (
    vote_messages.VoteRequest
    | begin_messages.BeginQuorumEpochRequest
    | end_messages.EndQuorumEpochRequest
    | fetch_messages.FetchRequest
    | snapshot_messages.FetchSnapshotRequest
)


def check_cluster(named: str | None, cluster_id: str) -> None:
    """Raises OtherCluster unless a request of a peer names this cluster."""
    if named != cluster_id:
        raise OtherCluster(f"the request names cluster {named!r}, and this is cluster {cluster_id!r}")


def request_from_wire(request: FromPeer, cluster_id: str) -> QuorumRequest:
    """Decodes a peer's request; raises OtherCluster or NotOurs if it is about another cluster or another log.

    Vote 0 and BeginQuorumEpoch 0 name no voter. They become requests to voter -1, which does not exist.
    """
    check_cluster(request.cluster_id, cluster_id)
    match request:
        case vote_messages.VoteRequest():
            return _vote_from(request)
        case begin_messages.BeginQuorumEpochRequest():
            return _begin_from(request)
        case end_messages.EndQuorumEpochRequest():
            part = _only([(topic.topic_name, topic.partitions) for topic in request.topics])
            successors = [
                ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in part.preferred_candidates
            ]
            successors = successors or [ReplicaKey(each) for each in part.preferred_successors]
            return EndEpoch(part.leader_epoch, part.leader_id, tuple(successors))
        case fetch_messages.FetchRequest():
            return _fetch_from(request)
        case snapshot_messages.FetchSnapshotRequest():
            found = _only([(topic.name, topic.partitions) for topic in request.topics])
            return FetchSnapshot(
                found.current_leader_epoch,
                ReplicaKey(request.replica_id, found.replica_directory_id),
                SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch),
                found.position,
                request.max_bytes,
            )


def _vote_from(request: vote_messages.VoteRequest) -> Vote:
    part = _only([(topic.topic_name, topic.partitions) for topic in request.topics])
    return Vote(
        part.replica_epoch,
        ReplicaKey(part.replica_id, part.replica_directory_id),
        ReplicaKey(request.voter_id, part.voter_directory_id),
        part.last_offset_epoch,
        part.last_offset,
        part.pre_vote,
    )


def _begin_from(request: begin_messages.BeginQuorumEpochRequest) -> BeginEpoch:
    part = _only([(topic.topic_name, topic.partitions) for topic in request.topics])
    voter = ReplicaKey(request.voter_id, part.voter_directory_id)
    return BeginEpoch(part.leader_epoch, part.leader_id, voter)


def _fetch_from(request: fetch_messages.FetchRequest) -> Fetch:
    names = {METADATA_TOPIC_ID: METADATA_TOPIC}
    part = _only([(topic.topic or names.get(topic.topic_id, ""), topic.partitions) for topic in request.topics])
    return Fetch(
        part.current_leader_epoch,
        ReplicaKey(max(request.replica_id, request.replica_state.replica_id), part.replica_directory_id),
        part.fetch_offset,
        part.last_fetched_epoch,
        part.high_watermark,
        request.max_wait_ms,
        min(request.max_bytes, part.partition_max_bytes),
    )


def _only(topics: Sequence[tuple[str, Sequence[Part]]]) -> Part:
    """The only partition that a message may be about."""
    if len(topics) != 1 or topics[0][0] != METADATA_TOPIC or len(topics[0][1]) != 1:
        raise NotOurs(f"the quorum keeps partition {PARTITION} of {METADATA_TOPIC} and nothing else")
    return topics[0][1][0]


# --- responses --------------------------------------------------------------------------------------------------------


def reply_to_wire(reply: Reply, kind: type[Request]) -> Response:
    """Encodes a reply of the raft core to a request of that class."""
    match reply:
        case VoteReply():
            vote = vote_messages.VoteResponsePartitionData(
                partition_index=PARTITION,
                error_code=reply.error,
                leader_id=reply.leader_id,
                leader_epoch=reply.epoch,
                vote_granted=reply.is_granted,
            )
            votes = [vote_messages.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[vote])]
            return vote_messages.VoteResponse(error_code=ErrorCode.NONE, topics=votes)
        case EpochReply() if kind is begin_messages.BeginQuorumEpochRequest:
            begun = begin_messages.BeginQuorumEpochResponsePartitionData(
                partition_index=PARTITION, error_code=reply.error, leader_id=reply.leader_id, leader_epoch=reply.epoch
            )
            begun_topic = begin_messages.BeginQuorumEpochResponseTopicData(
                topic_name=METADATA_TOPIC, partitions=[begun]
            )
            return begin_messages.BeginQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[begun_topic])
        case EpochReply():
            ended = end_messages.EndQuorumEpochResponsePartitionData(
                partition_index=PARTITION, error_code=reply.error, leader_id=reply.leader_id, leader_epoch=reply.epoch
            )
            ended_topic = end_messages.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[ended])
            return end_messages.EndQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[ended_topic])
        case FetchReply():
            return _fetch_reply(reply)
        case FetchSnapshotReply():
            return _snapshot_reply(reply)
    raise TypeError(f"{reply} does not answer a replica")


def _fetch_reply(reply: FetchReply) -> fetch_messages.FetchResponse:
    no_end, no_id = fetch_messages.EpochEndOffset(), fetch_messages.SnapshotId()
    diverging, snapshot = reply.diverging, reply.snapshot
    part = fetch_messages.PartitionData(
        partition_index=PARTITION,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        last_stable_offset=reply.high_watermark,
        log_start_offset=reply.start_offset,
        diverging_epoch=no_end
        if diverging is None
        else fetch_messages.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset),
        current_leader=fetch_messages.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        snapshot_id=no_id
        if snapshot is None
        else fetch_messages.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        aborted_transactions=None,
        records=reply.records or b"",
    )
    topic = fetch_messages.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[part])
    return fetch_messages.FetchResponse(throttle_time_ms=0, responses=[topic])


def _snapshot_reply(reply: FetchSnapshotReply) -> snapshot_messages.FetchSnapshotResponse:
    snapshot = reply.snapshot or SnapshotId(-1, -1)
    part = snapshot_messages.FetchSnapshotResponsePartitionSnapshot(
        index=PARTITION,
        error_code=reply.error,
        snapshot_id=snapshot_messages.FetchSnapshotResponseSnapshotId(
            end_offset=snapshot.end_offset, epoch=snapshot.epoch
        ),
        current_leader=snapshot_messages.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        size=reply.size_bytes,
        position=reply.position,
        unaligned_records=reply.data or b"",
    )
    topic = snapshot_messages.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    return snapshot_messages.FetchSnapshotResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[topic])


def reply_from_wire(response: Response) -> Reply:
    """Decodes a peer's response; raises NotOurs if it is an error for the whole request."""
    match response:
        case vote_messages.VoteResponse():
            _check(response.error_code)
            vote = _only([(topic.topic_name, topic.partitions) for topic in response.topics])
            return VoteReply(vote.error_code, vote.leader_epoch, vote.leader_id, vote.vote_granted)
        case begin_messages.BeginQuorumEpochResponse():
            _check(response.error_code)
            begun = _only([(topic.topic_name, topic.partitions) for topic in response.topics])
            return EpochReply(begun.error_code, begun.leader_epoch, begun.leader_id)
        case end_messages.EndQuorumEpochResponse():
            _check(response.error_code)
            ended = _only([(topic.topic_name, topic.partitions) for topic in response.topics])
            return EpochReply(ended.error_code, ended.leader_epoch, ended.leader_id)
        case fetch_messages.FetchResponse():
            _check(response.error_code)
            return _fetch_reply_from(response)
        case snapshot_messages.FetchSnapshotResponse():
            _check(response.error_code)
            part = _only([(topic.name, topic.partitions) for topic in response.topics])
            return FetchSnapshotReply(
                part.error_code,
                part.current_leader.leader_epoch,
                part.current_leader.leader_id,
                SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch),
                part.size,
                part.position,
                bytes(part.unaligned_records),
            )
    raise TypeError(f"{type(response).__name__} is not for the quorum")


def _fetch_reply_from(response: fetch_messages.FetchResponse) -> FetchReply:
    names = {METADATA_TOPIC_ID: METADATA_TOPIC}
    part = _only([(topic.topic or names.get(topic.topic_id, ""), topic.partitions) for topic in response.responses])
    diverging, snapshot = part.diverging_epoch, part.snapshot_id
    return FetchReply(
        part.error_code,
        part.current_leader.leader_epoch,
        part.current_leader.leader_id,
        part.high_watermark,
        part.log_start_offset,
        bytes(part.records or b""),
        EpochEnd(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
    )


def _check(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        raise NotOurs(f"a peer of the quorum answers {code.name}")
