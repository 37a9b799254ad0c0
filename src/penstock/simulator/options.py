"""Fault options of a world: which faults exist and how strong they are. Each seed draws its own mix (swarm testing).

A mix without some faults finds bugs that a mix of all hides: a bug that needs a long quiet period, for example.
"""

from dataclasses import dataclass
from random import Random

PARTITION_SHAPES = ("one_way", "isolate", "split", "bridge", "ring")
CLOCK_FAULTS = ("step", "drift", "strobe")


@dataclass(slots=True)
class FaultOptions:
    """Off by default. `…_every_s` is the mean time between two faults of a kind in the whole world; 0 is never."""

    # links, all the time
    delay_s_mean: float = 0.0005
    loss: float = 0.0
    straggler: float = 0.0
    straggler_s_max: float = 5.0
    fragment: float = 0.0
    bytes_per_s: float = 0.0
    window_bytes: int = 256 * 1024

    # network, now and then
    partition_every_s: float = 0.0
    partition_shapes: tuple[str, ...] = PARTITION_SHAPES
    partition_s_mean: float = 3.0
    reset_every_s: float = 0.0
    clog_every_s: float = 0.0
    clog_s_max: float = 5.0
    blackhole_every_s: float = 0.0
    blackhole_s_mean: float = 3.0

    # processes and machines
    kill_every_s: float = 0.0
    power_cut_every_s: float = 0.0
    down_s_max: float = 10.0
    down_nodes_max: int = 1
    """How many nodes faults may take down at once: a bound under which guarantees can be tested."""
    pause_every_s: float = 0.0
    pause_s_max: float = 10.0

    # clocks
    clock_every_s: float = 0.0
    clock_faults: tuple[str, ...] = CLOCK_FAULTS
    clock_step_ms_max: float = 600_000.0
    clock_drift_ppm_max: float = 5_000.0

    # disks
    sync_s_mean: float = 0.0005
    slow_sync: float = 0.0
    """Chance that a sync takes up to `slow_sync_s_max`."""
    slow_sync_s_max: float = 1.0
    disk_is_torn: bool = False
    disk_write_error: float = 0.0
    disk_sync_error: float = 0.0
    disk_read_error: float = 0.0


def draw_options(random: Random) -> FaultOptions:
    """Draws a mix: every kind of fault exists in about half of all worlds, with a random strength."""

    def maybe(low: float, high: float) -> float:
        strength = random.uniform(low, high)
        return strength if random.random() < 0.5 else 0.0

    def some(kinds: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(random.sample(kinds, random.randint(1, len(kinds))))

    return FaultOptions(
        delay_s_mean=random.choice((0.0002, 0.001, 0.01, 0.05)),
        loss=maybe(0.0, 0.3),
        straggler=maybe(0.0, 0.02),
        straggler_s_max=random.uniform(0.5, 20.0),
        fragment=maybe(0.0, 0.5),
        bytes_per_s=maybe(100_000.0, 10_000_000.0),
        window_bytes=random.choice((4_096, 65_536, 262_144)),
        partition_every_s=maybe(2.0, 30.0),
        partition_shapes=some(PARTITION_SHAPES),
        partition_s_mean=random.uniform(0.5, 15.0),
        reset_every_s=maybe(1.0, 20.0),
        clog_every_s=maybe(1.0, 20.0),
        clog_s_max=random.uniform(0.5, 5.0),
        blackhole_every_s=maybe(5.0, 30.0),
        blackhole_s_mean=random.uniform(0.5, 10.0),
        kill_every_s=maybe(3.0, 30.0),
        power_cut_every_s=maybe(3.0, 30.0),
        down_s_max=random.uniform(0.5, 30.0),
        pause_every_s=maybe(3.0, 30.0),
        pause_s_max=random.uniform(0.5, 30.0),
        clock_every_s=maybe(2.0, 30.0),
        clock_faults=some(CLOCK_FAULTS),
        clock_drift_ppm_max=random.choice((50.0, 500.0, 50_000.0)),
        sync_s_mean=random.choice((0.0001, 0.001, 0.01)),
        slow_sync=maybe(0.0, 0.05),
        disk_is_torn=random.random() < 0.5,
        disk_write_error=maybe(0.0, 0.001),
        disk_sync_error=maybe(0.0, 0.001),
        disk_read_error=maybe(0.0, 0.001),
    )
