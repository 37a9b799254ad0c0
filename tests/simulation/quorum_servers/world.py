"""Worlds of real quorum drivers: three nodes with penstock.log on lossy disks, Kafka's protocol between them.

Each node appends numbers while it leads, writes snapshots, and applies committed numbers; the nemesis injects faults.
Invariants: one leader per epoch; all nodes apply the same committed numbers, in all their lives; and when the faults
end, all agree and go on.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

from penstock.client.ports import ClientPorts
from penstock.log.directory import open_directory
from penstock.metadata.image import Image
from penstock.model.errors import ProtocolError
from penstock.model.limits import DEFAULT_LIMITS
from penstock.raft.ports import SnapshotId
from penstock.raft.raft import NotLeader
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.raft.roles import Role
from penstock.raft.settings import QuorumSettings
from penstock.records.builder import BatchBuilder
from penstock.records.header import batches
from penstock.records.rows import rows
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.connection import Service
from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.input_pool import InputPool
from penstock.server.connections.listener import ConnectionListener
from penstock.server.handlers.cluster.api_versions import ApiVersionsHandler
from penstock.server.handlers.cluster.quorum import QuorumHandler
from penstock.server.handlers.cluster.quorum_admin import QuorumAdminHandler
from penstock.server.partitions.group_commit import GroupCommit
from penstock.server.quorum.quorum_peers import QuorumPeers
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.server.quorum.quorum_snapshots import path_of
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions, draw_options
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World

PORT: Final = 9093
TORMENT_S: Final = 15.0
QUIET_S: Final = 24.0
END_S: Final = 30.0
NODES: Final = (1, 2, 3)
SETTINGS: Final = QuorumSettings(snapshot_chunk_bytes_max=200, fetch_bytes_max=2_000, snapshots_kept=2)
VOTERS: Final = VoterSet(
    Voter(ReplicaKey(node_id), (Endpoint("CONTROLLER", f"node-{node_id}", PORT),)) for node_id in NODES
)


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Ledger:
    """The committed numbers, as the first node applied them."""

    values: list[int] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    snapshots: int = 0
    breaches: list[str] = field(default_factory=list)
    """Broken invariants: the exception itself may be swallowed where it is raised."""

    def _breach(self, what: str) -> NoReturn:
        self.breaches.append(what)
        raise Broken(what)

    def applied(self, node_id: int, at: int, value: int) -> None:
        if at == len(self.values):
            self.values.append(value)
        elif self.values[at] != value:
            self._breach(f"node {node_id} applies {value} as number {at}, others {self.values[at]}")

    def leads(self, node_id: int, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node_id) != node_id:
            self._breach(f"epoch {epoch} is led by {self.leaders[epoch]} and {node_id}")


class Tally:
    """A state machine: the list of all numbers so far."""

    def __init__(self, node_id: int, ledger: Ledger) -> None:
        self._node_id = node_id
        self._ledger = ledger
        self.runner: QuorumRunner | None = None
        self.position = 0
        self.values: list[int] = []
        self.waiting: list[tuple[int, int, int]] = []
        """Numbers that it appended as a leader: epoch, end offset, number."""

    def leader_known(self, leader_id: int, epoch: int, start_offset: int) -> None:
        self.waiting.clear()
        if leader_id == self._node_id:
            self._ledger.leads(leader_id, epoch)

    def committed(self, end_offset: int) -> None:
        assert self.runner is not None
        while self.position < end_offset:
            for batch in batches(self.runner.log.read(self.position, 100_000)):
                if batch.base_offset >= end_offset:
                    break
                self._apply(numbers_in(batch))
                self.position = batch.last_offset + 1
        self._ledger.acknowledged |= {value for _, end, value in self.waiting if end <= end_offset}
        self.waiting = [each for each in self.waiting if each[1] > end_offset]

    def _apply(self, values: Iterator[int]) -> None:
        for value in values:
            self._ledger.applied(self._node_id, len(self.values), value)
            self.values.append(value)

    def load(self, snapshot: SnapshotId) -> None:
        assert self.runner is not None
        file = self.runner._directory.disk.open(path_of(snapshot))
        data = file.read(0, file.size())
        file.close()
        self.values = []
        self._apply(value for batch in batches(data) for value in numbers_in(batch))
        self.position = snapshot.end_offset


def numbers_in(batch: Any) -> Iterator[int]:
    if not batch.is_control:
        for row in rows(batch, 1 << 20):
            yield int(row.value or b"")


def batch_of(*values: int) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, str(value).encode(), timestamp_ms=0)
    return builder.build()


class NoFeatures:
    """A cluster that has finalized no feature."""

    position = 0
    image = Image()


class Program:
    """The program of a node, in all its lives."""

    def __init__(self, node_id: int, ledger: Ledger) -> None:
        self._node_id = node_id
        self._ledger = ledger
        self._numbers = iter(range(node_id, 1 << 40, 10))
        self.tally: Tally | None = None
        self.runner: QuorumRunner | None = None
        self.failures: list[str] = []
        self.is_stopping = False
        self.is_writing = True

    async def live(self, ports: Ports) -> None:
        loop = asyncio.get_running_loop()
        directory = await open_directory(
            ports.disk,
            cluster_id="simulated",
            node_id=self._node_id,
            entropy=ports.entropy,
            now_ms=0,
            ledger_bytes=4096,
        )
        if directory.findings.damage:
            raise Broken(f"what was promised is damaged: {directory.findings.damage}")
        self.tally = tally = Tally(self._node_id, self._ledger)
        failed: asyncio.Future[str] = loop.create_future()
        self.runner = tally.runner = runner = QuorumRunner(
            directory,
            ports.clock,
            ports.entropy,
            self._node_id,
            settings=SETTINGS,
            bootstrap=VOTERS,
            lock=asyncio.Lock(),
            on_failure=failed.set_result,
        )
        runner.leader_known.connect(tally.leader_known)
        runner.committed.connect(tally.committed)
        runner.snapshot_found.connect(tally.load)
        rounds = GroupCommit(directory)
        rounds.covered.connect(lambda _covered: runner.advance())
        commit = loop.create_task(rounds.run())
        await runner.load()
        client_warnings = ClientWarnings()
        dispatch = Dispatch(
            [
                ApiVersionsHandler((), NoFeatures()),
                QuorumHandler(runner, "simulated", client_warnings),
                QuorumAdminHandler(runner, "simulated", client_warnings, ports.clock),
            ]
        )
        place = await ports.network.listen("", PORT)
        pool = InputPool(DEFAULT_LIMITS.input_pool_bytes_max, DEFAULT_LIMITS.frame_lent_bytes)
        service = Service(dispatch, DEFAULT_LIMITS, pool, pool, ClientWarnings(), CodecWorker(ports.workers))
        listener = ConnectionListener(place, service, ports.clock, self.failures.append)
        listener.start()
        client_ports = ClientPorts(ports.network, ports.clock, ports.entropy)
        peers = QuorumPeers(client_ports, "simulated", SETTINGS.request_timeout_ms, runner.endpoint_of)
        runner.start(peers)
        while not failed.done() and not self.is_stopping:
            await asyncio.sleep(0.1)
            await self._work(runner, tally)
        if failed.done():
            self.failures.append(failed.result())
        await runner.stop()
        await peers.close()
        commit.cancel()

    async def _work(self, runner: QuorumRunner, tally: Tally) -> None:
        raft = runner.raft
        if self.is_writing and raft.role is Role.LEADER and raft.high_watermark > 0:
            value = next(self._numbers)
            try:
                end_offset = runner.append(raft.epoch, batch_of(value))
            except (NotLeader, ProtocolError):
                return
            tally.waiting.append((raft.epoch, end_offset, value))
        newest = runner.shelf.ids[-1].end_offset if runner.shelf.ids else 0
        if tally.position - newest >= 12 and tally.values:
            self._ledger.snapshots += 1
            await runner.snapshot(tally.position, [bytes(batch_of(*tally.values))])


class Run(NamedTuple):
    committed: int
    acknowledged: int
    epochs: int
    faults: int
    snapshots: int
    events: int
    trace_hash: str


def options_for(seed: int) -> FaultOptions:
    options = draw_options(Streams(seed).stream("options"))
    # A disk that fails takes its node out for good: after two of those there is no majority.
    options.disk_write_error = options.disk_sync_error = options.disk_read_error = 0.0
    options.down_s_max = min(options.down_s_max, 5.0)
    options.pause_s_max = min(options.pause_s_max, 5.0)
    return options


def run_seed(seed: int) -> Run:
    ledger = Ledger()
    programs = {node_id: Program(node_id, ledger) for node_id in NODES}
    with World(seed, options_for(seed)) as world:
        names = [f"node-{node_id}" for node_id in NODES]
        for node_id, name in zip(NODES, names, strict=True):
            world.add(name, programs[node_id].live)
            world.start(name)
        nemesis = Nemesis(world, names)
        nemesis.torment()
        world.run(seconds=TORMENT_S)
        nemesis.calm()
        world.network.settings.loss = world.network.settings.straggler = 0.0
        world.options.slow_sync = 0.0
        before = len(ledger.values)
        world.run(seconds=QUIET_S - TORMENT_S)
        for program in programs.values():
            program.is_writing = False
        world.run(seconds=END_S - QUIET_S)
        events, trace_hash = world.loop.events, world.trace_hash
        _check_end(ledger, programs, before)
    return Run(
        len(ledger.values),
        len(ledger.acknowledged),
        len(ledger.leaders),
        nemesis.faults,
        ledger.snapshots,
        events,
        trace_hash,
    )


def _check_end(ledger: Ledger, programs: dict[int, Program], before: int) -> None:
    if ledger.breaches:
        raise Broken(ledger.breaches[0])
    for node_id, program in programs.items():
        assert program.tally is not None
        if program.failures:
            raise Broken(f"node {node_id} went out: {program.failures}")
        behind = len(ledger.values) - len(program.tally.values)
        if behind:
            raise Broken(f"node {node_id} is {behind} numbers behind in the end")
    if len(ledger.values) < before + 20:
        raise Broken(f"only {len(ledger.values) - before} numbers were committed after all was mended")
    if missing := ledger.acknowledged - set(ledger.values):
        raise Broken(f"{sorted(missing)[:5]} were acknowledged and are gone")
