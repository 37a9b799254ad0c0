"""Description of the metadata quorum: leader, voters, observers, and the log end offset of each."""

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
from penstock.wire.types import ZERO_UUID

METADATA_TOPIC = "__cluster_metadata"
DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
)


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    """-1 if the replica has not fetched from the leader."""
    last_fetch_ms: int
    """Milliseconds since the Unix epoch; -1 if the replica has not fetched from the leader."""
    last_caught_up_ms: int
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum as its leader reports it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    @property
    def log_end_offset(self) -> int:
        """The leader's log end offset, which is the highest of all voters."""
        return max((each.log_end_offset for each in self.voters), default=-1)

    @property
    def lag_max(self) -> int:
        """Lag of the slowest voter; a voter without a known offset counts as empty."""
        return self.log_end_offset - min((max(0, each.log_end_offset) for each in self.voters), default=0)


async def describe_quorum(cluster: Cluster, *, timeout_ms: int | None = None) -> QuorumDescription:
    """Queries any broker, which queries the leader."""
    response = await cluster.ask_checked(DESCRIBE_QUORUM, DescribeQuorumResponse, _codes, timeout_ms=timeout_ms)
    return description_in(response)


def description_in(response: DescribeQuorumResponse) -> QuorumDescription:
    """The description in a response of the leader; raises Refused if another node sent it."""
    check(response.error_code, response.error_message, "the metadata quorum")
    (part,) = response.topics[0].partitions
    check(part.error_code, part.error_message, "the metadata quorum")
    known = {each.replica_id for each in part.observers if each.replica_directory_id != ZERO_UUID}
    places = {node.node_id: tuple(f"{each.host}:{each.port}" for each in node.listeners) for node in response.nodes}
    return QuorumDescription(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        tuple(_replica(each, places) for each in part.current_voters),
        tuple(_replica(each, places) for each in part.observers if _is_current(each, known)),
    )


def _is_current(state: ReplicaState, known: set[int]) -> bool:
    """False for what is left of a replica from the time when its directory was not known."""
    return state.replica_directory_id != ZERO_UUID or state.replica_id not in known


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
