"""Random faults, each kind from its own stream, with the strengths of the world's options.

`torment` starts them. `calm` ends them, heals everything and starts nodes that are down, for the second phase of a run,
in which the nodes must recover.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeAlias

from penstock.simulator import partitions
from penstock.simulator.world import World

Fault: TypeAlias = Callable[[Random], Coroutine[Any, Any, None]]


class Nemesis:
    """Injects faults into some nodes of a world. Bystanders, such as clients, get only cuts, clogs and resets."""

    def __init__(self, world: World, targets: Sequence[str], bystanders: Sequence[str] = ()) -> None:
        self._world = world
        self._targets = list(targets)
        self._everybody = [*targets, *bystanders]
        self._tasks: list[asyncio.Task[None]] = []
        self._downed = 0
        self.faults = 0
        """Number of faults so far."""
        assert self._targets
        assert len(self._everybody) > 1

    def torment(self) -> None:
        """Starts the faults."""
        options = self._world.options
        kinds: dict[str, tuple[float, Fault]] = {
            "partition": (options.partition_every_s, self._partition),
            "reset": (options.reset_every_s, self._reset),
            "clog": (options.clog_every_s, self._clog),
            "blackhole": (options.blackhole_every_s, self._blackhole),
            "kill": (options.kill_every_s, self._kill),
            "power cut": (options.power_cut_every_s, self._cut_power),
            "pause": (options.pause_every_s, self._pause),
            "clock": (options.clock_every_s, self._disturb_clock),
        }
        for kind, (every_s, fault) in kinds.items():
            if every_s:
                self._begin(self._repeat(every_s, fault, self._world.streams.stream("nemesis", kind)))

    def add(self, fault: Coroutine[Any, Any, None]) -> None:
        """Starts a fault of the caller, which `calm` ends as well."""
        self._begin(fault)

    def calm(self) -> None:
        """Ends all faults: all nodes run, all links pass, all clocks are correct."""
        world = self._world
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._downed = 0
        world.note("calm", "world")
        world.network.heal_all()
        for name in self._targets:
            node = world.nodes[name]
            node.clock.set_right()
            world.resume(name)
            if not node.is_up:
                world.start(name)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._world.loop.create_task(work, context=self._world.loop.root.context.copy()))

    async def _repeat(self, every_s: float, fault: Fault, random: Random) -> None:
        while True:
            await asyncio.sleep(random.expovariate(1.0 / every_s))
            self.faults += 1
            self._begin(fault(random))

    # --- one coroutine per fault, which also undoes it if necessary

    async def _partition(self, random: Random) -> None:
        options, names = self._world.options, self._everybody
        shape = random.choice(options.partition_shapes)
        if shape == "one_way":
            pairs = partitions.one_way(*random.sample(names, 2))
        elif shape == "isolate":
            pairs = partitions.isolate(random.choice(self._targets), names)
        else:
            make = {"split": partitions.split, "bridge": partitions.bridge, "ring": partitions.ring}[shape]
            pairs = make(self._targets, random)
        partition = self._world.network.cut(pairs)
        await asyncio.sleep(random.expovariate(1.0 / options.partition_s_mean))
        partition.heal()

    async def _reset(self, random: Random) -> None:
        one, other = random.sample(self._everybody, 2)
        self._world.network.reset(one, other, is_one_sided=random.random() < 0.5)

    async def _clog(self, random: Random) -> None:
        one, other = random.sample(self._everybody, 2)
        self._world.network.clog(one, other, random.random() * self._world.options.clog_s_max)

    async def _blackhole(self, random: Random) -> None:
        host = self._world.network.host(random.choice(self._targets))
        host.is_blackhole = True
        await asyncio.sleep(random.expovariate(1.0 / self._world.options.blackhole_s_mean))
        host.is_blackhole = False

    async def _kill(self, random: Random) -> None:
        await self._take_down(random, self._world.kill)

    async def _cut_power(self, random: Random) -> None:
        await self._take_down(random, self._world.cut_power)

    async def _take_down(self, random: Random, fault: Callable[[str], None]) -> None:
        world = self._world
        name = random.choice(self._targets)
        down_s = random.random() * world.options.down_s_max
        if self._downed >= world.options.down_nodes_max or not world.nodes[name].is_up:
            return
        self._downed += 1
        fault(name)
        await asyncio.sleep(down_s)
        self._downed -= 1
        if not world.nodes[name].is_up:
            world.start(name)

    async def _pause(self, random: Random) -> None:
        name = random.choice(self._targets)
        self._world.pause(name)
        await asyncio.sleep(random.random() * self._world.options.pause_s_max)
        self._world.resume(name)

    async def _disturb_clock(self, random: Random) -> None:
        options = self._world.options
        name = random.choice(self._targets)
        clock = self._world.nodes[name].clock
        kind = random.choice(options.clock_faults)
        amount = random.uniform(-1.0, 1.0)
        self._world.note("clock", name, kind)
        if kind == "step":
            clock.step(amount * options.clock_step_ms_max)
        elif kind == "drift":
            clock.drift(amount * options.clock_drift_ppm_max)
        else:
            clock.strobe(amount * options.clock_step_ms_max, random.uniform(0.01, 1.0))
