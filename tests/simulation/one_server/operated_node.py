"""The node of a world, its machine, and the operator of both.

The operator starts a node that is down, and restarts one that has a log offline. At every look the node's offsets are
compared with earlier ones, across all its lives.
"""

import asyncio
from typing import Final

from penstock.log.checked import Damaged
from penstock.model.errors import ProtocolError
from penstock.server.node import Node
from penstock.server.settings import CannotStart, ListenerSettings, NodeSettings, UpkeepSettings
from penstock.simulator.node import Ports
from tests.simulation.one_server.world_state import NODE, PORT, Broken, WorldState

LOOK_S: Final = 0.04


class OperatedNode:
    """See the module."""

    def __init__(self, state: WorldState) -> None:
        self._state = state
        self._world = state.world
        script = state.script
        self._settings = NodeSettings(
            "simulated",
            listeners=(ListenerSettings(port=PORT),),
            stop_ms=script.stop_ms,
            ledger_bytes=script.ledger_bytes,
            reserve_bytes=script.reserve_bytes,
            upkeep=UpkeepSettings(pass_ms=script.pass_ms, retention_ms=script.retention_ms),
        )
        self._machine = self._world.add(NODE, self._live)
        self._wait = self._machine.disk.delay
        self._machine.disk.delay = self._wait_or_fall
        self._trap: tuple[str, int] | None = None
        self.node: Node | None = None
        """The node while it serves."""
        self._stopping: asyncio.Future[None] | None = None
        self._down_until_s = 0.0
        self._is_spoilt = False
        """Whether a disk fault was injected since the node's last life ended."""
        self._restart_at_s: float | None = None
        self._seen: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.starts_failed = 0

    # --- the program

    async def _live(self, ports: Ports) -> None:
        node = Node(ports, self._settings)
        try:
            await node.start()
        except (OSError, CannotStart, ProtocolError, Damaged) as error:
            if not self._is_spoilt:
                raise
            self._state.count("failed start", NODE, f"{error}")
            self._down_until_s = self._state.time_s + 0.05
            self._forget_orders()
            return
        findings = node.storage.directory.findings
        if findings.damage:
            raise Broken(f"what was promised is damaged: {findings.damage}")
        scanned = f"scanned {findings.scanned_bytes} bytes, cut {len(findings.cut)} tails"
        self._state.count("start", NODE, scanned if findings.scanned_bytes or findings.cut else "")
        self.node = node
        self._stopping = asyncio.get_running_loop().create_future()
        await self._stopping
        self.node = None
        try:
            await node.stop()
        except (OSError, ProtocolError) as error:
            if not self._is_spoilt:
                raise
            self._state.count("failed stop", NODE, f"{error}")
        else:
            self._state.tell(NODE, "has stopped cleanly")
        self._forget_orders()

    # --- faults

    def start(self) -> None:
        self._world.start(NODE)

    async def until_up(self, lives: int) -> None:
        """Waits until the node serves in this life or a later one."""
        while self.node is None or self._machine.lives < lives:
            await asyncio.sleep(LOOK_S)

    @property
    def lives(self) -> int:
        """How often the node was started."""
        return self._machine.lives

    def cut_power(self, down_s: float) -> None:
        self._state.count("power cut", NODE, f"down for {down_s:.3f} s")
        self._gone(down_s)
        self._world.cut_power(NODE)

    def kill(self, down_s: float) -> None:
        if self._machine.is_up:
            self._state.count("kill", NODE, f"down for {down_s:.3f} s")
            self._gone(down_s)
            self._world.kill(NODE)

    def stop(self, down_s: float) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._state.count("clean stop", NODE, f"down for {down_s:.3f} s")
            self._down_until_s = self._state.time_s + down_s
            self._restart_at_s = None
            self._stopping.set_result(None)

    def _gone(self, down_s: float) -> None:
        self.look()
        self.node = self._stopping = None
        self._restart_at_s = None
        self._down_until_s = self._state.time_s + down_s
        self._forget_orders()

    def _forget_orders(self) -> None:
        """Clears injected disk errors, which end with the process."""
        self._is_spoilt = self._machine.disk.faults.capacity_bytes is not None

    def set_trap(self, path: str, waits: int) -> None:
        """Cuts the power at a wait for the disk whose path contains `path`, after skipping `waits` of them."""
        self._trap = path, waits

    async def _wait_or_fall(self, operation: str, path: str) -> None:
        if self._trap is not None and self._trap[0] in path:
            what, waits = self._trap
            self._trap = what, waits - 1
            if not waits:
                self._trap = None
                self._state.tell(NODE, f"waits for {operation} of {path}")
                context = self._world.loop.root.context.copy()
                self._world.loop.call_soon(self.cut_power, 0.0, context=context)
        assert self._wait is not None
        await self._wait(operation, path)

    def spoil(self, operation: str, count: int) -> None:
        self._state.count("disk error", NODE, f"the next {count} × {operation} will fail")
        self._is_spoilt = True
        self._machine.disk.fail_next(operation, count=count)

    def fill(self, room_bytes: int) -> None:
        disk = self._machine.disk
        used = disk._used()
        self._state.count("full disk", NODE, f"{room_bytes} bytes are left")
        self._is_spoilt = True
        disk.faults.capacity_bytes = used + room_bytes

    def free(self) -> None:
        self._machine.disk.faults.capacity_bytes = None
        self._state.tell(NODE, "has room on its disk again")

    # --- the operator

    async def operate(self) -> None:
        """Looks after the node, until cancelled."""
        while True:
            now_s = self._state.time_s
            if not self._machine.is_up:
                if now_s >= self._down_until_s:
                    self.node = self._stopping = None
                    self.start()
            elif self._restart_at_s is not None and now_s >= self._restart_at_s:
                self._restart_at_s = None
                self._state.count("operator restart", NODE)
                if self._world.streams.stream("operator").random() < 0.5:
                    self.kill(0.0)
                else:
                    self.stop(0.0)
            else:
                self.look()
            await asyncio.sleep(LOOK_S)

    def calm(self) -> None:
        """Ends disk faults; a node that may still meet an injected error is restarted."""
        self._down_until_s = 0.0
        self._trap = None
        if self._machine.disk.faults.capacity_bytes is not None:
            self.free()
        if self._is_spoilt and self._machine.is_up:
            self.kill(0.0)

    def look(self) -> None:
        """Checks the node's offsets against each other and against earlier ones."""
        node = self.node
        if node is None:
            return
        is_offline = node.member.controller.offline_reason is not None
        for partition in node.broker.partitions:
            log = partition.log
            if log.offline_reason is not None:
                is_offline = True
                continue
            start, stable, high, end = log.start_offset, log.last_stable_offset, log.high_watermark, log.written_end
            if not start <= stable <= high <= log.durable_end <= end:
                raise Broken(f"{log.path}: {start=} {stable=} {high=} durable={log.durable_end} {end=}")
            key = partition.topic_id, partition.index
            start_before, high_before = self._seen.get(key, (0, 0))
            if start < start_before:
                raise Broken(f"{log.path}: the start went back from {start_before} to {start}")
            if high < high_before:
                raise Broken(f"{log.path}: the high watermark went back from {high_before} to {high}")
            self._seen[key] = start, high
        if is_offline:
            if not self._is_spoilt:
                reasons = [log.offline_reason for log in node.storage.directory.logs.values() if log.offline_reason]
                raise Broken(
                    f"something is offline though the disk is well: {reasons} {node.member.controller.offline_reason}"
                )
            if self._restart_at_s is None:
                self._restart_at_s = self._state.time_s + self._state.script.patience_s
