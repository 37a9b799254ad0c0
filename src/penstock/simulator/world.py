"""A world: one seed, one loop, one network, and nodes that start, crash, pause and restart.

A node is any `async def main(ports)`. Every event adds a row to the trace; two runs of one seed have the same
`trace_hash`. Used as a context manager, a world also turns off automatic garbage collection, which runs at other points
in every run.
"""

import asyncio
import gc
from collections.abc import Awaitable
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from penstock.simulator.disk import LifeDisk
from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.link import LinkSettings
from penstock.simulator.loop import EVENTS_MAX, new_loop
from penstock.simulator.network import NodeNetwork, SimulatedNetwork
from penstock.simulator.node import Life, Main, Node, Ports, make_disk
from penstock.simulator.options import FaultOptions
from penstock.simulator.randomness import Streams
from penstock.simulator.trace import Trace
from penstock.simulator.workers import SimulatedWorkers

T = TypeVar("T")

COLLECT_EVERY_WORLDS = 50


class World:
    """See the module. Random faults are in `nemesis`; this class has faults on command."""

    _worlds_since_collection: ClassVar[int] = 0

    def __init__(
        self,
        seed: int,
        options: FaultOptions | None = None,
        *,
        keeps_trace: bool = False,
        events_max: int = EVENTS_MAX,
    ) -> None:
        self.seed = seed
        self.options = options if options is not None else FaultOptions()
        self.loop = new_loop(events_max)
        self.streams = Streams(seed)
        self.trace = Trace(self.loop, is_kept=keeps_trace)
        self.network = SimulatedNetwork(self.loop, self.streams, self.trace)
        self.network.settings = _link_settings(self.options)
        self.network.window_bytes = self.options.window_bytes
        self.nodes: dict[str, Node] = {}
        self._collects_garbage = False

    # --- running

    def run(self, seconds: float) -> None:
        """Runs for that many seconds of virtual time."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def run_until(self, awaitable: Awaitable[T], *, limit_s: float) -> T:
        """Runs until the awaitable is done; raises TimeoutError after `limit_s`."""
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, limit_s))

    @property
    def trace_hash(self) -> str:
        """Equal for equal runs."""
        return self.trace.digest()

    def note(self, kind: str, node: str, *details: object) -> None:
        """Adds a row to the trace."""
        self.trace.note(kind, node, *details)

    def close(self) -> None:
        """Ends all lives and closes the loop."""
        if not self.loop.is_closed():
            for node in self.nodes.values():
                if node.life is not None:
                    node.life.revoke()
                    node.life = None
            self.loop.close()

    def __enter__(self) -> Self:
        World._worlds_since_collection += 1
        if World._worlds_since_collection >= COLLECT_EVERY_WORLDS:
            World._worlds_since_collection = 0
            gc.collect()
        self._collects_garbage = gc.isenabled()
        gc.disable()
        gc.freeze()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.loop.raise_unseen()
        finally:
            self.close()
            gc.unfreeze()
            if self._collects_garbage:
                gc.enable()

    # --- nodes

    def add(self, name: str, main: Main, *, tolerates: tuple[type[BaseException], ...] = ()) -> Node:
        """Adds a node, without starting it."""
        assert name not in self.nodes, name
        node = Node(name, main, tolerates, self.loop)
        node.disk = make_disk(name, self.options, self.streams, self.trace)
        self.network.host(name)
        self.nodes[name] = node
        return node

    def start(self, name: str) -> None:
        """Boots the machine if it has no power, and starts the program."""
        node = self.nodes[name]
        assert not node.is_up, f"{name} is up"
        if not self.network.host(name).has_power:
            self.network.restore_power(name)
            node.clock.reboot()
        node.lives += 1
        self.note("start", name, node.lives)
        ports = Ports(
            name=name,
            clock=node.clock,
            entropy=SimulatedEntropy(self.streams.stream("entropy", name)),
            disk=LifeDisk(node.disk),
            network=NodeNetwork(self.network, name),
            workers=SimulatedWorkers(self.loop, self.streams.stream("workers", name)),
        )
        life = node.life = Life(self.loop.new_lane(name), ports)
        self.loop.create_task(self._live(node, life), context=life.lane.context.copy())

    def kill(self, name: str) -> None:
        """SIGKILL: ends the program between two callbacks; its disk and machine go on."""
        node = self.nodes[name]
        if node.life is not None:
            self.note("kill", name)
            self._end_process(node, node.life)

    def cut_power(self, name: str) -> None:
        """Cuts the power of the machine: unsynced data is lost, and peers are not notified."""
        node = self.nodes[name]
        self.note("power cut", name)
        if node.life is not None:
            self._end_life(node, node.life)
        self.network.cut_power(name)
        node.disk = node.disk.power_cut()

    def restart(self, name: str) -> None:
        """Kills the program if it runs, and starts it."""
        self.kill(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """SIGSTOP: suspends the program; its machine still receives bytes."""
        node = self.nodes[name]
        if node.life is not None and not node.is_paused:
            self.note("pause", name)
            node.is_paused = True
            self.loop.hold(node.life.lane)

    def resume(self, name: str) -> None:
        """SIGCONT: runs all waiting callbacks at once."""
        node = self.nodes[name]
        if node.life is not None and node.is_paused:
            self.note("resume", name)
            node.is_paused = False
            self.loop.release(node.life.lane)

    # --- inside

    async def _live(self, node: Node, life: Life) -> None:
        failure: BaseException | None = None
        try:
            await node.main(life.ports)
        except (Exception, asyncio.CancelledError) as error:
            failure = error
        if node.life is not life:
            return  # it was ended from outside; errors while its tasks are unwound do not count
        self.note("exit", node.name, *([type(failure).__name__] if failure else []))
        if failure is not None and not isinstance(failure, (asyncio.CancelledError, *node.tolerates)):
            message = f"{node.name} failed in the world of seed {self.seed}"
            self.loop.call_exception_handler({"message": message, "exception": failure})
        self._end_process(node, life)

    def _end_process(self, node: Node, life: Life) -> None:
        self._end_life(node, life)
        self.network.end_process(node.name)
        node.disk.kill_process()

    def _end_life(self, node: Node, life: Life) -> None:
        life.revoke()
        self.loop.end(life.lane)
        node.life = None
        node.is_paused = False


def _link_settings(options: FaultOptions) -> LinkSettings:
    return LinkSettings(
        delay_s_mean=options.delay_s_mean,
        loss=options.loss,
        straggler=options.straggler,
        straggler_s_max=options.straggler_s_max,
        fragment=options.fragment,
        bytes_per_s=options.bytes_per_s,
    )
