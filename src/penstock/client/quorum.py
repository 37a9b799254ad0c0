"""A look at the metadata quorum: who leads, who votes, who observes, and how far each is."""

from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    """-1 where the leader has not heard of it."""
    last_fetch_ms: int
    """Since the epoch; -1 where the leader has not heard of it."""
    last_caught_up_ms: int
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    @property
    def log_end_offset(self) -> int:
        """The leader's."""
        return max((each.log_end_offset for each in self.voters), default=-1)

    @property
    def lag_max(self) -> int:
        """How far the slowest voter is behind; a voter that nobody has heard of lacks everything."""
        return self.log_end_offset - min((max(0, each.log_end_offset) for each in self.voters), default=0)


async def describe_quorum(cluster: Cluster, *, timeout_ms: int | None = None) -> QuorumDescription:
    """Asks any broker, which asks the leader."""
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    response = await cluster.ask_checked(
        DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, _codes, timeout_ms=timeout_ms
    )
    check(response.error_code, response.error_message, "the metadata quorum")
    (part,) = response.topics[0].partitions
    check(part.error_code, part.error_message, "the metadata quorum")
    places = {node.node_id: tuple(f"{each.host}:{each.port}" for each in node.listeners) for node in response.nodes}
    return QuorumDescription(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        tuple(_replica(each, places) for each in part.current_voters),
        tuple(_replica(each, places) for each in part.observers),
    )


def _codes(response: DescribeQuorumResponse) -> list[ErrorCode]:
    codes = [response.error_code, *(part.error_code for topic in response.topics for part in topic.partitions)]
    return [code for code in codes if code is not ErrorCode.NONE]


def _replica(state: ReplicaState, places: dict[int, tuple[str, ...]]) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        places.get(state.replica_id, ()),
    )
