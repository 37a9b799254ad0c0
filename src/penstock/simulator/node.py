"""A node: a name, a program, and the machine that runs it. The machine outlives the program's lives."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.simulator.clock import SimulatedClock
from penstock.simulator.disk import LifeDisk
from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.lane import Lane
from penstock.simulator.loop import VirtualLoop
from penstock.simulator.network import NodeNetwork
from penstock.simulator.options import FaultOptions
from penstock.simulator.randomness import Streams
from penstock.simulator.trace import Trace
from penstock.simulator.workers import SimulatedWorkers


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one life of a node."""

    name: str
    clock: SimulatedClock
    entropy: SimulatedEntropy
    disk: LifeDisk
    network: NodeNetwork
    workers: SimulatedWorkers


Main: TypeAlias = Callable[[Ports], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the program, from its start to its end."""

    lane: Lane
    ports: Ports

    def revoke(self) -> None:
        """Revokes network and disk, so that remaining tasks of this life have no effect."""
        self.ports.network.is_revoked = True
        self.ports.disk.is_revoked = True


class Node:
    """The program and its machine."""

    def __init__(self, name: str, main: Main, tolerates: tuple[type[BaseException], ...], loop: VirtualLoop) -> None:
        self.name = name
        self.main = main
        self.tolerates = tolerates
        """Errors with which the program may end; any other fails the run."""
        self.clock = SimulatedClock(loop.time)
        self.disk: LossyDisk
        self.life: Life | None = None
        self.lives = 0
        self.is_paused = False

    @property
    def is_up(self) -> bool:
        """Whether the program runs or is paused."""
        return self.life is not None


def make_disk(name: str, options: FaultOptions, streams: Streams, trace: Trace) -> LossyDisk:
    """A lossy disk in memory whose syncs take virtual time."""
    stream = streams.stream("disk latency", name)

    async def delay(operation: str, path: str) -> None:
        delay_s = stream.expovariate(1.0) * options.sync_s_mean
        if options.slow_sync and stream.random() < options.slow_sync:
            delay_s += stream.random() * options.slow_sync_s_max
        trace.note(operation, name, path)
        await asyncio.sleep(delay_s)

    faults = Faults(
        is_torn=options.disk_is_torn,
        read_error=options.disk_read_error,
        write_error=options.disk_write_error,
        sync_error=options.disk_sync_error,
    )
    return LossyDisk(MemoryDisk(), streams.stream("disk", name), faults, delay=delay)
