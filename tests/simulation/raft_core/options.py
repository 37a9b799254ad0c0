"""The faults of a world of raft cores and their frequencies, drawn from the seed."""

from typing import NamedTuple, TypeVar

from penstock.raft.settings import QuorumSettings
from penstock.simulator.randomness import Streams

T = TypeVar("T")
HURRY = 20

FAULTS = (
    "crash",
    "crash",
    "power cut",
    "partition",
    "partition",
    "one-way cut",
    "one-way cut",
    "pause",
    "voters",
    "voters",
    "wipe",
    "resign",
    "leap",
)


class Options(NamedTuple):
    voters: int
    spares: int
    loss: float
    duplication: float
    straggling: float
    delay_ms: float
    sync_ms: float
    slow_sync: float
    clock_drift: float
    fault_every_ms: float
    faults: tuple[str, ...]
    ambush: float
    """The probability of a power cut right after a vote is granted."""
    append_every_ms: float
    outsider_every_ms: float
    """The mean interval between requests of a host that is no node of the cluster; 0: never."""
    snapshot_every: int
    settings: QuorumSettings


def draw_options(seed: int) -> Options:
    """Draws every option from its own stream, so that a new option does not change existing worlds."""
    streams = Streams(seed)

    def one_of(name: str, *choices: T) -> T:
        return streams.stream("options", name).choice(choices)

    haste = one_of("haste", 1, 1, 1, 1, 1, 1, 4, HURRY)
    options = Options(
        voters=one_of("voters", 1, 2, 3, 3, 3, 3, 4, 5, 5),
        spares=one_of("spares", 0, 1, 1, 2),
        loss=one_of("loss", 0.0, 0.0, 0.02, 0.1, 0.3),
        duplication=one_of("duplication", 0.0, 0.05, 0.2),
        straggling=one_of("straggling", 0.0, 0.005, 0.03),
        delay_ms=one_of("delay", 0.5, 3.0, 15.0),
        sync_ms=one_of("sync", 0.2, 2.0, 20.0),
        slow_sync=one_of("slow sync", 0.0, 0.01, 0.05),
        clock_drift=one_of("clock drift", 0.0, 0.05, 0.3),
        fault_every_ms=one_of("fault", 500.0, 1_500.0, 4_000.0),
        faults=tuple(fault for fault in FAULTS if streams.stream("options", fault).random() < 0.6),
        ambush=one_of("ambush", 0.0, 0.05, 0.3),
        append_every_ms=one_of("append", 60.0, 200.0, 600.0),
        outsider_every_ms=one_of("outsider", 0.0, 300.0, 2_000.0),
        snapshot_every=one_of("snapshot", 0, 8, 8, 40),
        settings=QuorumSettings(
            election_timeout_ms=1_000 // haste,
            fetch_timeout_ms=2_000 // haste,
            request_timeout_ms=1_000 // haste,
            fetch_wait_ms=500 // haste,
            fetch_bytes_max=one_of("fetch", 2, 10, 100),  # counted in entries here
            snapshot_chunk_bytes_max=one_of("chunk", 16, 64),
            snapshots_kept=one_of("kept", 1, 2),
            observer_idle_ms=one_of("idle", 2_000, 300_000),
        ),
    )
    if haste == HURRY:  # time-outs hardly longer than round trips: all nodes become candidates at once
        options = options._replace(delay_ms=15.0, sync_ms=10.0, ambush=0.3, slow_sync=0.05)
    return options


CALM = Options(
    voters=3,
    spares=0,
    loss=0.0,
    duplication=0.0,
    straggling=0.0,
    delay_ms=1.0,
    sync_ms=0.5,
    slow_sync=0.0,
    clock_drift=0.0,
    fault_every_ms=0.0,
    faults=(),
    ambush=0.0,
    append_every_ms=0.0,
    outsider_every_ms=0.0,
    snapshot_every=0,
    settings=QuorumSettings(fetch_bytes_max=100, snapshot_chunk_bytes_max=16, snapshots_kept=1),
)
"""A world without faults, for scenarios that bring their own."""
