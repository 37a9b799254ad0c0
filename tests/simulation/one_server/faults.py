"""Faults in a node's world: a plan drawn from the seed, and an operator that restarts the node.

Every plan has at least one crash in it. Kinds of faults are left out by chance, so that some worlds have long quiet
stretches. `calm` ends all faults; from then on everything must work, and soon.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeAlias

from tests.simulation.one_server.operated_node import OperatedNode
from tests.simulation.one_server.world_state import NODE, STRICT, WorldState

TORMENT_S: Final = (0.1, 6.0)
"""The period of the world in which faults begin."""

Fault: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

CRASHES: Final = ("power cut", "kill")
KINDS: Final = (
    "power cut",
    "power cut",
    "kill",
    "kill",
    "ambush",
    "ambush",
    "trap",
    "trap",
    "clean stop",
    "second crash",
    "reset",
    "reset",
    "partition",
    "clog",
    "pause",
    "client pause",
    "client kill",
    "clock",
    "write back",
    "sync error",
    "write error",
    "read error",
)


class Misfortune:
    """Carries out the plan."""

    def __init__(
        self, state: WorldState, operated_node: OperatedNode, clients: list[str], mortal: list[str], *, fills_disk: bool
    ) -> None:
        """`mortal` are the clients that may be killed."""
        self._state = state
        self._operated_node = operated_node
        self._clients = clients
        self._mortal = mortal
        self._world = state.world
        self._random: Random = state.world.streams.stream("faults")
        self._tasks: list[asyncio.Task[None]] = []
        kinds = [*KINDS, *(["full disk"] * 3 if fills_disk else [])]
        present = [kind for kind in kinds if self._random.random() < 0.5]
        count = self._random.choice((1, 3, 5, 8, 12))
        self.plan = [(self._random.uniform(*TORMENT_S), self._random.choice(CRASHES))]
        self.plan += [(self._random.uniform(*TORMENT_S), self._random.choice(present)) for _ in range(count) if present]
        self.plan.sort()

    def begin(self) -> None:
        self._tasks.append(self._world.loop.create_task(self._carry_out()))

    def calm(self) -> None:
        """Stops new faults and heals the present ones."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._state.ambush = None
        self._state.tell("world", "calms down")
        network, options = self._world.network, self._world.options
        network.heal_all()
        network.settings.loss = network.settings.straggler = 0.0
        options.slow_sync = 0.0
        for name in [NODE, *self._clients]:
            node = self._world.nodes[name]
            node.clock.set_right()
            self._world.resume(name)
            if name != NODE and not node.is_up and name not in self._state.finished:
                self._world.start(name)
        self._operated_node.calm()

    async def _carry_out(self) -> None:
        for at_s, kind in self.plan:
            await asyncio.sleep(max(0.0, at_s - self._state.time_s))
            work = getattr(self, "_" + kind.replace(" ", "_"))
            self._tasks.append(self._world.loop.create_task(work()))

    # --- the node

    async def _power_cut(self) -> None:
        self._operated_node.cut_power(self._random.uniform(0.0, 0.8))

    async def _kill(self) -> None:
        self._operated_node.kill(self._random.uniform(0.0, 0.5))

    async def _second_crash(self) -> None:
        """Crashes the node again while it recovers from the first crash, or soon after."""
        crashes = (self._operated_node.cut_power, self._operated_node.kill)
        for _ in range(self._random.choice((2, 2, 3))):
            self._random.choice(crashes)(0.0)
            await asyncio.sleep(self._random.choice((0.003, 0.02, 0.1)) * self._random.random() + 0.002)

    async def _ambush(self) -> None:
        """Cuts the power at the moment of an acknowledgement."""
        # Half of them for the gardener, if there is one: it seldom receives acknowledgements.
        victims = self._clients[-1:] if self._random.random() < 0.5 else self._clients
        victim, down_s = self._random.choice(victims), self._random.uniform(0.0, 0.5)

        def strike(name: str) -> None:
            if name == victim:
                self._state.ambush = None
                self._world.loop.call_soon(
                    self._operated_node.cut_power, down_s, context=self._world.loop.root.context.copy()
                )

        self._state.ambush = strike

    async def _trap(self) -> None:
        """Cuts the power in the middle of an operation of several steps."""
        path = self._random.choice(("manifest", "ledger", "__cluster_metadata", "index", "producers", STRICT, ""))
        self._operated_node.set_trap(path, self._random.choice((0, 1, 5)))

    async def _clean_stop(self) -> None:
        self._operated_node.stop(self._random.uniform(0.0, 0.5))

    async def _pause(self) -> None:
        await self._suspend(NODE)

    async def _write_back(self) -> None:
        self._state.count("write back", NODE)
        self._world.nodes[NODE].disk.write_back()

    async def _sync_error(self) -> None:
        self._operated_node.spoil(
            self._random.choice(("sync", "sync", "sync_dir", "sync_all")), self._random.choice((1, 3))
        )

    async def _write_error(self) -> None:
        self._operated_node.spoil(self._random.choice(("write", "truncate")), 1)

    async def _read_error(self) -> None:
        self._operated_node.spoil(self._random.choice(("read", "open")), self._random.choice((1, 3)))

    async def _full_disk(self) -> None:
        self._operated_node.fill(self._random.choice((0, 500, 3_000)))
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        self._operated_node.free()

    # --- clocks and clients

    async def _clock(self) -> None:
        random = self._random
        name = random.choice([NODE, NODE, *self._clients])
        clock = self._world.nodes[name].clock
        kind = random.choice(("step", "drift", "strobe"))
        amount = random.uniform(-1.0, 1.0)
        self._state.count("clock", name, f"{kind} {amount:.3f}")
        if kind == "step":
            clock.step(amount * 600_000)
        elif kind == "drift":
            clock.drift(amount * 50_000)
        else:
            clock.strobe(amount * 600_000, random.uniform(0.01, 1.0))

    async def _client_pause(self) -> None:
        await self._suspend(self._random.choice(self._clients))

    async def _suspend(self, name: str) -> None:
        seconds = self._random.uniform(0.05, 1.5)
        if self._world.nodes[name].is_up:
            self._state.count("pause", name, f"{seconds:.3f} s")
            self._world.pause(name)
            await asyncio.sleep(seconds)
            self._world.resume(name)

    async def _client_kill(self) -> None:
        name = self._random.choice(self._mortal)
        if self._world.nodes[name].is_up:
            self._state.count("client kill", name)
            self._world.kill(name)
            await asyncio.sleep(self._random.uniform(0.0, 0.5))
            if not self._world.nodes[name].is_up:
                self._world.start(name)

    # --- the network

    async def _reset(self) -> None:
        name, is_one_sided = self._random.choice(self._clients), self._random.random() < 0.5
        sides = (name, NODE) if self._random.random() < 0.5 else (NODE, name)
        self._state.count("reset", name, "as one side sees it" if is_one_sided else "")
        self._world.network.reset(*sides, is_one_sided=is_one_sided)

    async def _partition(self) -> None:
        random = self._random
        names = self._clients if random.random() < 0.4 else [random.choice(self._clients)]
        ways = random.choice((("there",), ("back",), ("there", "back")))
        seconds = random.uniform(0.1, 2.0)
        pairs = [(name, NODE) for name in names if "there" in ways] + [(NODE, name) for name in names if "back" in ways]
        self._state.count("partition", ", ".join(names), f"{' and '.join(ways)}, {seconds:.3f} s")
        partition = self._world.network.cut(pairs)
        await asyncio.sleep(seconds)
        partition.heal()

    async def _clog(self) -> None:
        name, seconds = self._random.choice(self._clients), self._random.uniform(0.05, 1.0)
        sides = (name, NODE) if self._random.random() < 0.5 else (NODE, name)
        self._state.count("clog", name, f"{seconds:.3f} s")
        self._world.network.clog(*sides, seconds)
