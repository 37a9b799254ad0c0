"""The faults of a world of a whole cluster and their frequencies, drawn from the seed."""

from typing import NamedTuple, TypeVar

from penstock.simulator.randomness import Streams
from tests.simulation.controller_core import options as controller_options
from tests.simulation.raft_core import options as raft_options

T = TypeVar("T")

DEEDS = ("shutdown", "reassign", "cancel", "topics", "topics", "minimum", "producer ids", "decommission", "elect")
"""Actions of operators, besides the faults of the quorum and lost records."""
LOSS = "loss"
FAULTS = (*raft_options.FAULTS, LOSS, LOSS, *DEEDS)


class Layout(NamedTuple):
    """The nodes: voters first, then observers; brokers run on the nodes from `first_broker` on."""

    voters: int
    spares: int
    first_broker: int


class Options(NamedTuple):
    layout: Layout
    quorum: raft_options.Options
    brokers: controller_options.Options
    deeds: tuple[str, ...]
    deed_every_ms: float
    are_probed: bool
    """Whether the controller probes a broker whose connection broke."""
    joins_at_ms: float
    """When the last node starts, if there are more than are needed."""


def draw_options(seed: int) -> Options:
    """Draws every option from its own stream, so that a new option does not change existing worlds."""
    streams = Streams(seed)

    def one_of(name: str, *choices: T) -> T:
        return streams.stream("cluster options", name).choice(choices)

    quorum, brokers = raft_options.draw_options(seed), controller_options.draw_options(seed)
    layout = one_of(
        "layout",
        Layout(3, 0, 1),
        Layout(3, 0, 1),
        Layout(3, 1, 1),
        Layout(3, 2, 1),
        Layout(5, 0, 1),
        Layout(3, 3, 4),
        Layout(3, 3, 4),
        Layout(5, 3, 6),
        Layout(1, 2, 1),
    )
    return Options(
        layout,
        quorum._replace(
            voters=layout.voters,
            spares=layout.spares,
            append_every_ms=0.0,
            fault_every_ms=one_of("fault", 1_000.0, 2_000.0, 5_000.0),
            snapshot_every=one_of("snapshot", 0, 20, 60),
        ),
        brokers,
        deeds=tuple(deed for deed in (*DEEDS, LOSS, LOSS) if streams.stream("cluster options", deed).random() < 0.7),
        deed_every_ms=one_of("deed", 500.0, 1_500.0),
        are_probed=one_of("probes", True, False),
        joins_at_ms=one_of("join", 0.0, 10_000.0, 25_000.0),
    )
