"""The faults of a world of replicas and their frequencies, drawn from the seed."""

from typing import NamedTuple, TypeVar

from penstock.simulator.randomness import Streams

T = TypeVar("T")

FAULTS = (
    "kill",
    "kill",
    "power cut",
    "power cut",
    "blackout",
    "partition",
    "one-way cut",
    "one-way cut",
    "pause",
    "pause",
    "shutdown",
    "move",
    "elect",
    "rush",
    "rush",
    "to and fro",
    "second life",
    "delete",
    "lull",
    "minimum",
    "failover",
    "stale",
)


class Options(NamedTuple):
    brokers: int
    partitions: int
    factor: int
    in_sync_min: int
    is_fsync: bool
    is_beyond: bool
    """Whether more may be lost than the topic survives: then lost records must not be reported as present."""
    loss: float
    straggling: float
    delay_ms: float
    metadata_ms: float
    """How long the metadata log takes to reach a broker."""
    is_stepwise: bool
    """Whether a broker that is behind applies every image in between, or the newest at once."""
    sync_ms: float
    produce_every_ms: float
    fault_every_ms: float
    faults: tuple[str, ...]
    lag_ms: int
    session_ms: int
    patience_ms: int
    """The time-out of a request."""
    entries_max: int
    """Records of a partition in one response."""
    delete_every_ms: float
    """The mean interval between DeleteRecords; 0 for none before the end."""
    batch_max: int = 1
    """The maximum number of records in a batch."""
    fails_logs: bool = False
    """Whether logs of brokers fail: a sync or a write."""
    outsider_every_ms: float = 0.0
    """The mean interval between fetches of a host that is no broker, with a made-up broker epoch; 0: never."""


def draw_options(seed: int) -> Options:
    """Draws every option from its own stream, so that a new option does not change existing worlds."""
    streams = Streams(seed)

    def one_of(name: str, *choices: T) -> T:
        return streams.stream("options", name).choice(choices)

    brokers = one_of("brokers", 3, 3, 3, 4, 5)
    factor = min(brokers, one_of("factor", 2, 3, 3, 3, 4))
    is_fsync = one_of("fsync", True, False)
    return Options(
        brokers=brokers,
        partitions=one_of("partitions", 1, 2, 3),
        factor=factor,
        in_sync_min=min(factor, one_of("in sync", 1, 2, 2, 2, 3)),
        is_fsync=is_fsync,
        is_beyond=not is_fsync and one_of("beyond", True, False, False, False),
        loss=one_of("loss", 0.0, 0.0, 0.01, 0.05, 0.2),
        straggling=one_of("straggling", 0.0, 0.005, 0.03),
        delay_ms=one_of("delay", 0.5, 3.0, 15.0),
        metadata_ms=one_of("metadata", 1.0, 20.0, 200.0, 1_500.0),
        is_stepwise=one_of("stepwise", True, False),
        sync_ms=one_of("sync", 0.5, 5.0, 40.0),
        produce_every_ms=one_of("produce", 60.0, 150.0, 400.0),
        fault_every_ms=one_of("fault", 600.0, 1_500.0, 4_000.0),
        faults=tuple(fault for fault in FAULTS if streams.stream("options", fault).random() < 0.6),
        lag_ms=one_of("lag", 700, 1_500, 4_000),
        session_ms=one_of("session", 1_500, 3_000),
        patience_ms=one_of("patience", 700, 1_500),
        entries_max=one_of("entries", 2, 10, 100),
        delete_every_ms=one_of("delete records", 0.0, 500.0, 2_000.0),
        batch_max=one_of("batch", 1, 1, 2, 5),
        fails_logs=one_of("failing logs", False, False, True),
        outsider_every_ms=one_of("outsider", 0.0, 300.0, 2_000.0),
    )


CALM = Options(
    brokers=3,
    partitions=1,
    factor=3,
    in_sync_min=2,
    is_fsync=False,
    is_beyond=False,
    loss=0.0,
    straggling=0.0,
    delay_ms=1.0,
    metadata_ms=1.0,
    is_stepwise=False,
    sync_ms=0.5,
    produce_every_ms=0.0,
    fault_every_ms=0.0,
    faults=(),
    lag_ms=2_000,
    session_ms=3_000,
    patience_ms=1_000,
    entries_max=100,
    delete_every_ms=0.0,
    outsider_every_ms=0.0,
)
"""A world without faults, for scenarios that bring their own."""
