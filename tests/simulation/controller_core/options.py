"""The faults of a world of controller cores and their frequencies, drawn from the seed."""

from typing import NamedTuple, TypeVar

from penstock.simulator.randomness import Streams

T = TypeVar("T")

FAULTS = (
    "crash",
    "crash",
    "loss",
    "loss",
    "pause",
    "cut off",
    "stall",
    "stall",
    "brink",
    "failover",
    "failover",
    "shutdown",
    "shutdown",
    "reassign",
    "reassign",
    "cancel",
    "topics",
    "minimum",
    "producer ids",
    "join",
    "decommission",
    "lost peer",
    "elect",
)


class Options(NamedTuple):
    brokers: int
    spares: int
    racks: tuple[str | None, ...]
    partitions: int
    replication_factor: int
    in_sync_min: int
    loss: float
    straggling: float
    """The probability that a message is seconds late."""
    delay_ms: float
    patience_ms: float
    """How long a leader waits for a follower to catch up; sometimes longer than a session."""
    is_careless: bool
    """Whether leaders propose fenced brokers and ones that shut down, as they did before KIP-841."""
    fault_every_ms: float
    produce_every_ms: float
    faults: tuple[str, ...]
    moves_max: int
    settings: dict[str, str]


def draw_options(seed: int) -> Options:
    """Draws every option from its own stream, so that a new option does not change existing worlds."""
    streams = Streams(seed)

    def one_of(name: str, *choices: T) -> T:
        return streams.stream("options", name).choice(choices)

    moves_max = one_of("moves", 1, 2, 5)
    return Options(
        brokers=one_of("brokers", 3, 3, 4, 5),
        spares=one_of("spares", 0, 1, 1, 2),
        racks=one_of("racks", (None,), (None,), ("a", "b"), ("a", "b", "c")),
        partitions=one_of("partitions", 1, 2, 4),
        replication_factor=one_of("factor", 2, 3, 3),
        in_sync_min=one_of("minimum", 1, 2, 2, 2),
        loss=one_of("loss", 0.0, 0.0, 0.02, 0.1),
        straggling=one_of("straggling", 0.0, 0.01, 0.05, 0.15),
        delay_ms=one_of("delay", 1.0, 5.0, 20.0),
        patience_ms=one_of("patience", 1_500.0, 8_000.0),
        is_careless=one_of("careless", False, False, True),
        fault_every_ms=one_of("fault", 500.0, 1_500.0, 3_000.0),
        produce_every_ms=one_of("produce", 100.0, 300.0),
        faults=tuple(fault for fault in FAULTS if streams.stream("options", fault).random() < 0.6),
        moves_max=moves_max,
        settings={
            "reassignment.replicas.per.broker.max": str(moves_max),
            "reassignment.leader.interval.ms": str(one_of("leaders", 0, 0, 300, 2_000)),
            "leader.imbalance.check.interval.seconds": str(one_of("preferred", 2, 5)),
        },
    )
