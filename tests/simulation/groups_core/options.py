"""The faults of a world of groups and their frequencies, drawn from the seed."""

from typing import NamedTuple, TypeVar

from penstock.simulator.randomness import Streams

T = TypeVar("T")

FAULTS = (
    "failover",
    "failover",
    "unaware",
    "unaware",
    "crash",
    "crash",
    "stall",
    "stall",
    "uncommitted",
    "refusal",
    "unreadable",
    "old news",
    "compaction",
    "compaction",
    "gap",
    "client crash",
    "client crash",
    "client pause",
    "client pause",
    "client leaves",
    "client leaves",
    "client joins",
    "growth",
    "impatient",
    "everybody leaves",
    "operator",
)

KINDS = ("eager", "cooperative", "consumer", "mixed")


class Options(NamedTuple):
    groups: tuple[str, ...]
    """The kind of each group."""
    members: int
    partitions: int
    statics: float
    """The share of static members."""
    uses_range: bool
    uses_patterns: bool
    loss: float
    straggling: float
    doubling: float
    delay_ms: float
    commit_ms: float
    heartbeat_ms: float
    session_ms: int
    rebalance_ms: int
    retention_ms: int
    members_max: int
    interval_ms: int
    slow_revokes: float
    slow_takes: float
    fault_every_ms: float
    faults: tuple[str, ...]
    lease_ms: int
    """How long a leader without contact may go on answering; no other leader is elected unknown to it before that."""
    outages: int
    """How often no controller answers for long."""
    piece_rows: int
    """How many rows of the log are read at a time."""


def draw_options(seed: int) -> Options:
    """Draws every option from its own stream, so that a new option does not change existing worlds."""
    streams = Streams(seed)

    def one_of(name: str, *choices: T) -> T:
        return streams.stream("options", name).choice(choices)

    members = one_of("members", 2, 3, 4, 5)
    return Options(
        groups=(one_of("kind", *KINDS), one_of("other kind", *KINDS)),
        members=members,
        partitions=one_of("partitions", 2, 4, 6),
        statics=one_of("statics", 0.0, 0.3, 0.6),
        uses_range=one_of("range", False, False, True),
        uses_patterns=one_of("patterns", False, False, True),
        loss=one_of("loss", 0.0, 0.0, 0.01, 0.05),
        straggling=one_of("straggling", 0.0, 0.01, 0.05),
        doubling=one_of("doubling", 0.0, 0.02, 0.1),
        delay_ms=one_of("delay", 1.0, 5.0, 25.0),
        commit_ms=one_of("commit", 2.0, 10.0, 80.0),
        heartbeat_ms=one_of("heartbeat", 900.0, 1_300.0),
        session_ms=one_of("session", 4_000, 6_000),
        rebalance_ms=one_of("rebalance", 3_000, 6_000),
        retention_ms=one_of("retention", 4_000, 9_000),
        members_max=one_of("members max", members + 1, members + 3),
        interval_ms=one_of("interval", 0, 500, 1_000),
        slow_revokes=one_of("slow revokes", 0.0, 0.1, 0.3),
        slow_takes=one_of("slow takes", 0.0, 0.3, 0.8),
        fault_every_ms=one_of("fault", 700.0, 1_500.0, 3_000.0),
        faults=tuple(fault for fault in FAULTS if streams.stream("options", fault).random() < 0.6),
        lease_ms=one_of("lease", 1_000, 4_000),
        outages=one_of("outages", 0, 0, 0, 1, 2),
        piece_rows=one_of("piece", 3, 20, 500),
    )
