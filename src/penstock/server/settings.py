"""What a node is told when it starts. What the cluster decides (topics, dynamic settings) is not here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.bootstrap import Address
from penstock.log.ledger import LEDGER_BYTES
from penstock.log.space import RESERVE_BYTES
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.raft.settings import QuorumSettings
from penstock.server.upkeep_loop import DEFAULT_UPKEEP, UpkeepSettings


class CannotStart(Exception):
    """The node refuses to start; the sentence says why and what to do."""


class Feature(NamedTuple):
    """A feature as ApiVersions tells clients about it."""

    name: str
    min_version: int
    max_version: int
    finalized: int
    """The level in force; 0 is off."""


SUPPORTED_FEATURES = (
    Feature("metadata.version", 7, 29, 29),
    Feature("eligible.leader.replicas.version", 0, 1, 1),
    Feature("group.version", 0, 1, 1),
)
"""What this version of the software can do; a new cluster begins with the finalized levels."""


@dataclass(frozen=True, slots=True)
class ControllerListener:
    """Where other nodes reach this one's side of the metadata quorum."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Membership:
    """What a node is in its cluster, and where the metadata quorum is."""

    is_broker: bool = True
    is_controller: bool = True
    listener: ControllerListener | None = None
    """None for a node that nobody else reaches: it is its own quorum."""
    voters: Sequence[tuple[int, Address]] = ()
    """The voters that a new cluster begins with, by id; from then on the metadata log says who votes."""
    bootstrap_servers: Sequence[Address] = ()
    """Controllers to ask who votes, where `voters` says nothing."""

    @property
    def is_alone(self) -> bool:
        """Whether the node is a cluster of its own, and needs nobody to begin."""
        return not self.voters and not self.bootstrap_servers


ALONE = Membership()


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of one node."""

    cluster_id: str
    node_id: int = 0
    listen_host: str = "127.0.0.1"
    listen_port: int = 9092
    allow_plaintext_beyond_loopback: bool = False
    """Whether anybody who reaches the listener may read and write everything, unencrypted."""
    metrics: Address | None = None
    """Where metrics and health are shown over HTTP; None for nowhere."""
    stop_ms: int = 10_000
    """How long a stopping node waits for requests under way."""
    stall_ms_max: int = 200
    """A loop that stands still for longer is worth a sentence in the log."""
    features: Sequence[Feature] = ()
    membership: Membership = ALONE
    broker: BrokerSettings = field(default_factory=lambda: BrokerSettings({}))
    """What the operator's file says, by Kafka's names."""
    data_path: str = "data"
    """Where the data directory lies, as its operator named it."""
    limits: Limits = DEFAULT_LIMITS
    upkeep: UpkeepSettings = DEFAULT_UPKEEP
    ledger_bytes: int = LEDGER_BYTES
    """The size of each of the two files that say how far the logs are on stable storage."""
    reserve_bytes: int = RESERVE_BYTES
    """Room that is kept back, so that a full disk can be emptied."""


def check_listener(settings: NodeSettings) -> None:
    """Refuses plaintext where others can listen in, unless it was asked for."""
    places = [(settings.listen_host, settings.listen_port)] if settings.membership.is_broker else []
    if settings.membership.listener is not None:
        places.append((settings.membership.listener.host, settings.membership.listener.port))
    if settings.metrics is not None:
        places.append(settings.metrics)
    for host, port in places:
        if not is_loopback(host) and not settings.allow_plaintext_beyond_loopback:
            raise CannotStart(
                f"The listener {host or '*'}:{port} is plaintext and can be reached from other machines: "
                "set allow.plaintext.beyond.loopback=true if the network is trusted, "
                "or listen on 127.0.0.1."
            )


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, whoever asks."""
    return host in {"localhost", "::1"} or (host.startswith("127.") and host.count(".") == 3 and host[-1].isdigit())


def quorum_settings(broker: BrokerSettings) -> QuorumSettings:
    """The quorum's time-outs, as Kafka names them."""
    fetch_timeout_ms = broker.number("controller.quorum.fetch.timeout.ms")
    return QuorumSettings(
        election_timeout_ms=broker.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=fetch_timeout_ms,
        request_timeout_ms=min(broker.number("controller.quorum.request.timeout.ms"), max(1, fetch_timeout_ms // 2)),
        fetch_wait_ms=min(500, max(1, fetch_timeout_ms // 4)),
    )


def first_voters(settings: NodeSettings, key: ReplicaKey) -> VoterSet:
    """Who votes while the metadata log does not say. A node that is alone knows its own directory, too."""
    membership = settings.membership
    if membership.is_alone:
        return VoterSet([Voter(key)]) if membership.is_controller else VoterSet()
    name = membership.listener.name if membership.listener is not None else "CONTROLLER"
    return VoterSet(
        Voter(ReplicaKey(node_id), (Endpoint(name, address.host, address.port),))
        for node_id, address in membership.voters
    )
