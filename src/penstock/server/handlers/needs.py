"""What the handlers of this folder need of a node, so that a test can give them just that."""

from typing import Protocol, cast

from penstock.log.directory import DataDirectory
from penstock.model.ports import Clock
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.adoption import Adoption
from penstock.server.codec_worker import CodecWorker
from penstock.server.complaints import Complaints
from penstock.server.controller_channel import ControllerChannel
from penstock.server.controller_runner import ControllerRunner
from penstock.server.departures import Departures
from penstock.server.group_coordinator import GroupCoordinator
from penstock.server.metadata_answer import TopicPieces
from penstock.server.opening import Opener
from penstock.server.partitions import Partitions
from penstock.server.predecessors import Predecessors
from penstock.server.quorum_runner import QuorumRunner
from penstock.server.replica_runner import ReplicaRunner
from penstock.server.serving import Call
from penstock.server.upkeep_loop import Upkeep


class ProducerIds(Protocol):
    """Where producer ids come from: blocks that the controller gives out, so that no id is ever given twice."""

    async def next(self) -> int:
        """An id that nobody has. ProtocolError when none can be had now."""


class Needs(Protocol):
    """A node as handlers see it."""

    clock: Clock
    directory: DataDirectory
    partitions: Partitions
    replicas: ReplicaRunner
    predecessors: Predecessors
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    groups: GroupCoordinator
    upkeep: Upkeep
    controller: ControllerRunner
    channel: ControllerChannel
    adoption: Adoption
    quorum: QuorumRunner
    topic_pieces: TopicPieces
    opener: Opener
    departures: Departures
    complaints: Complaints
    codec: CodecWorker
    data_path: str
    """Where the data directory lies, as its operator named it."""
    cluster_id: str

    @property
    def is_in_touch(self) -> bool:
        """Whether the cluster has heard of this broker lately; else others may lead what it believes to lead."""

    def probe(self, broker_id: int, broker_epoch: int) -> None:
        """Looks whether a broker is still there: the connection of its heartbeats has ended."""


def node_of(call: Call) -> Needs:
    """The node that was called."""
    return cast("Needs", call.node)
