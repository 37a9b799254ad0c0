"""What a node is told when it starts. What the cluster decides (topics, dynamic settings) is not here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.log.ledger import LEDGER_BYTES
from penstock.log.space import RESERVE_BYTES
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.limits import DEFAULT_LIMITS, Limits
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


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of one node."""

    cluster_id: str
    node_id: int = 0
    listen_host: str = "127.0.0.1"
    listen_port: int = 9092
    allow_plaintext_beyond_loopback: bool = False
    """Whether anybody who reaches the listener may read and write everything, unencrypted."""
    stop_ms: int = 10_000
    """How long a stopping node waits for requests under way."""
    stall_ms_max: int = 200
    """A loop that stands still for longer is worth a sentence in the log."""
    features: Sequence[Feature] = ()
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
    host = settings.listen_host
    is_loopback = host in {"localhost", "::1"} or host.startswith("127.")
    if not is_loopback and not settings.allow_plaintext_beyond_loopback:
        raise CannotStart(
            f"The listener {host or '*'}:{settings.listen_port} is plaintext and can be reached from other machines: "
            "set allow.plaintext.beyond.loopback=true if the network is trusted, "
            "or listen on 127.0.0.1."
        )
