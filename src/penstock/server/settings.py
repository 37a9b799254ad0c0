"""Static settings of a node. Cluster state (topics, dynamic settings) is not here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.bootstrap import Address
from penstock.log.ledger import LEDGER_BYTES
from penstock.log.space import RESERVE_BYTES
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.model.loopback import beyond_loopback, is_loopback
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.raft.settings import QuorumSettings


class CannotStart(Exception):
    """The node refuses to start; the sentence says why and what to do."""


class Feature(NamedTuple):
    """A feature as ApiVersions reports it."""

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
"""Features of this version of the software; a new cluster begins with the finalized levels."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """How often log upkeep runs, and how much it does at once."""

    pause_ms: int = 20
    """Pause between two turns while there is work."""
    pass_ms: int = 1_000
    """Interval of passes over all logs that find segments to seal."""
    retention_ms: int = 300_000
    """Interval of passes that apply retention and expire idle producers (Kafka: log.retention.check.interval.ms)."""
    looks_per_turn_max: int = 1_000
    logs_per_turn_max: int = 32


DEFAULT_UPKEEP = UpkeepSettings()


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """A listener: its name, the address that it is bound to, and the address at which others find it."""

    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 9092
    advertised: Address | None = None
    """None for the address at which a client has reached the listener; port 0 for the bound port."""
    is_advertised: bool = True
    """Whether the broker registers the listener, so that answers name it; not used for a controller's listener."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Roles of a node in its cluster, and addresses of the metadata quorum."""

    is_broker: bool = True
    is_controller: bool = True
    listener: ListenerSettings | None = None
    """The controller's listener; None if no other node connects to it, as in a cluster of one node."""
    voters: Sequence[tuple[int, Address]] = ()
    """Voters of a new cluster, by id; later the voter set comes from the metadata log."""
    bootstrap_servers: Sequence[Address] = ()
    """Controllers to query for the voter set if `voters` is empty."""

    @property
    def is_alone(self) -> bool:
        """Whether the node is a cluster of its own and starts without other nodes."""
        return not self.voters and not self.bootstrap_servers


ALONE = Membership()


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of one node."""

    cluster_id: str
    node_id: int = 0
    listeners: Sequence[ListenerSettings] = (ListenerSettings(),)
    """The listeners for clients and other brokers."""
    inter_broker_listener: str = "PLAINTEXT"
    """The name of the listener through which brokers connect to each other."""
    allow_plaintext_beyond_loopback: bool = False
    """Whether anybody who reaches a listener may read and write everything, unencrypted."""
    metrics: Address | None = None
    """Address of the HTTP listener for metrics and health; None for none."""
    stop_ms: int = 10_000
    """Time limit of the controlled shutdown, and again of in-flight requests."""
    stall_ms_max: int = 200
    """Longer stalls of the event loop are logged."""
    features: Sequence[Feature] = ()
    membership: Membership = ALONE
    broker: BrokerSettings = field(default_factory=lambda: BrokerSettings({}))
    """Settings from the operator's file, by Kafka's names."""
    data_path: str = "data"
    """Path of the data directory, as the operator gave it."""
    limits: Limits = DEFAULT_LIMITS
    upkeep: UpkeepSettings = DEFAULT_UPKEEP
    ledger_bytes: int = LEDGER_BYTES
    """Size of each of the two ledger files, which record how far the logs are on stable storage."""
    reserve_bytes: int = RESERVE_BYTES
    """Disk space kept in reserve, so that a full disk can be emptied."""


def check_listeners(settings: NodeSettings) -> None:
    """Raises CannotStart for a plaintext listener beyond loopback, unless the settings allow it."""
    membership = settings.membership
    listeners = [*settings.listeners] if membership.is_broker else []
    if membership.listener is not None:
        listeners.append(membership.listener)
    places = [(each.name, each.host, each.port) for each in listeners]
    if settings.metrics is not None:
        places.append(("of the metrics", *settings.metrics))
    for name, host, port in places:
        if not is_loopback(host) and not settings.allow_plaintext_beyond_loopback:
            raise CannotStart(beyond_loopback(name, host, port))


def quorum_settings(broker: BrokerSettings) -> QuorumSettings:
    """The quorum's time-outs, from Kafka's settings."""
    fetch_timeout_ms = broker.number("controller.quorum.fetch.timeout.ms")
    return QuorumSettings(
        election_timeout_ms=broker.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=fetch_timeout_ms,
        request_timeout_ms=min(broker.number("controller.quorum.request.timeout.ms"), max(1, fetch_timeout_ms // 2)),
        fetch_wait_ms=min(500, max(1, fetch_timeout_ms // 4)),
    )


def first_voters(settings: NodeSettings, key: ReplicaKey) -> VoterSet:
    """The voter set until the metadata log holds one. A node that is alone includes its directory id."""
    membership = settings.membership
    if membership.is_alone:
        return VoterSet([Voter(key)]) if membership.is_controller else VoterSet()
    name = membership.listener.name if membership.listener is not None else "CONTROLLER"
    return VoterSet(
        Voter(ReplicaKey(node_id), (Endpoint(name, address.host, address.port),))
        for node_id, address in membership.voters
    )
