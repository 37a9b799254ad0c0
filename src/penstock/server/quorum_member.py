"""This node's member of the metadata quorum: its replica of the metadata log, and the controller on top of it."""

from penstock.client.bootstrap import Address
from penstock.client.ports import ClientPorts
from penstock.raft.replicas import ReplicaKey
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.metadata_snapshots import MetadataSnapshots
from penstock.server.controller.probes import Probes
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.ports import Ports
from penstock.server.quorum.quorum_peers import QuorumPeers
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.server.settings import NodeSettings, first_voters, quorum_settings
from penstock.server.storage import Storage
from penstock.server.supervisor import Supervisor


class QuorumMember:
    """Every node has one: a voter or an observer."""

    def __init__(
        self,
        storage: Storage,
        ports: Ports,
        settings: NodeSettings,
        supervisor: Supervisor,
        client_warnings: ClientWarnings,
        arrivals: TopicArrivals,
    ) -> None:
        key = ReplicaKey(settings.node_id, bytes.fromhex(storage.directory.identity["directory_id"]))
        timing = quorum_settings(settings.broker)
        self.quorum = QuorumRunner(
            storage.directory,
            ports.clock,
            ports.entropy,
            settings.node_id,
            settings=timing,
            bootstrap=first_voters(settings, key),
            lock=storage.lock,
            on_failure=supervisor.fail,
            on_warning=client_warnings.say,
        )
        self.controller = ControllerRunner(
            ports.clock,
            ports.entropy,
            settings.node_id,
            settings.broker,
            self.quorum,
            settings.features,
            supervisor.fail,
        )
        client_ports = ClientPorts(ports.network, ports.clock, ports.entropy)
        self._peers = QuorumPeers(client_ports, settings.cluster_id, timing.request_timeout_ms, self.quorum.endpoint_of)
        self.probes = Probes(self.controller, ports.network)
        self.snapshots = MetadataSnapshots(self.controller, self.quorum, arrivals, ports.clock)
        self._bootstrap: tuple[Address, ...] = tuple(settings.membership.bootstrap_servers)
        supervisor.failing.connect(self._fail)

    async def join(self) -> None:
        """Joins the quorum. If the voters are unknown, the bootstrap servers are queried first."""
        if not self.quorum.raft.voters.ids:
            self.quorum.begin_with(await self._peers.find_voters(self._bootstrap))
        self.quorum.start(self._peers)

    async def has_leader(self) -> None:
        """Returns when the quorum has a leader."""
        await self.controller.until(lambda: self.quorum.raft.leader_id >= 0)

    @property
    def has_caught_up(self) -> bool:
        """Whether the image has reached the high watermark that this node last received from the leader."""
        return 0 < self.quorum.raft.high_watermark <= self.controller.position

    async def stop(self) -> None:
        """Resigns if it leads, and sends nothing from then on."""
        await self.probes.stop()
        await self.quorum.stop()

    async def close(self) -> None:
        """Ends the connections to other members."""
        await self._peers.close()

    def _fail(self, sentence: str) -> None:
        self.controller.fail(self.quorum.offline_reason or sentence)
