"""The worlds of `replicating_servers.world` with a fourth broker, and with more than crashes and cuts.

moves        An operator moves partitions between the four brokers, also while an earlier move is in progress.
retention    Records of a topic are deleted by size while they are written; log starts may differ between replicas.
lost disk    The broker that is no controller is started from scratch, on an empty disk: one lost copy of everything.
bit rot      A bit flips in the data of one log on stable storage, while the node is down. The log is reported as
             damaged, and fetched again.
duplicates   Requests to brokers, of clients and of other brokers, are delivered a second time, late, on a connection of
             their own, as by a proxy that re-sends requests without a response.
replicated   The topics have durability=replicated, and processes are killed wherever power would be cut.

Each is drawn from a stream of its own. At most one of lost disk, bit rot and replicated is drawn in one world: more
than one lost copy is not tolerated. All invariants of `replicating_servers.world` must hold. Requests to controllers
are not duplicated, and only the broker that is no controller loses its disk: a voter without its disk has to leave the
quorum first.
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.log.log import Log
from penstock.metadata.image import Image
from penstock.model.errors import ProtocolError
from penstock.model.ports import Buffer, Connection, FileSlice
from penstock.records.header import BatchView
from penstock.records.rows import rows
from penstock.server.node import Node
from penstock.server.settings import CannotStart, NodeSettings
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports, make_disk
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World
from tests.simulation.page_cache_servers.world import CarefulWorld
from tests.simulation.replicating_servers.world import (
    DELETER,
    FSYNC,
    PARTITIONS,
    PURGED,
    READERS,
    TOPIC,
    TORMENT_S,
    WRITERS,
    Deleter,
    Keeper,
    Run,
    Theatre,
    Writer,
    read_batches,
    settings_for,
)
from tests.simulation.three_servers.world import NODES, PORT, Book, Broken, options_for, silence

FOURTH: Final = 4
"""A broker that is no controller."""
BROKERS: Final = (*NODES, FOURTH)
AGING: Final = "aging"
"""A topic with one partition, subject to retention."""
AGING_CONFIGS: Final = {"retention.bytes": "4000", "internal.segment.bytes": "1500"}
AGING_WRITER: Final = "writer-3"
MOVER: Final = "mover"
PARROT: Final = "parrot"
REPLICATED: Final = "replicated"

MOVES: Final = "moves"
EXPIRED: Final = "records expired"
LOST_DISKS: Final = "lost disks"
ROT: Final = "bit rot"
DUPLICATES: Final = "duplicated requests"
"""The names under which they are counted."""


class Upheaval(NamedTuple):
    """The options of a world."""

    moves: bool
    duplicates: float
    """The share of requests that are delivered twice."""
    loss: str
    """Lost disk, bit rot, replicated, or nothing."""


def draw_upheaval(seed: int) -> Upheaval:
    streams = Streams(seed)
    return Upheaval(
        moves=streams.stream("upheaval", "moves").random() < 0.7,
        duplicates=streams.stream("upheaval", "duplicates").choice((0.0, 0.01, 0.05)),
        loss=streams.stream("upheaval", "loss").choice((LOST_DISKS, ROT, ROT, REPLICATED, "")),
    )


# --- requests that are delivered twice --------------------------------------------------------------------------------


class Parrot:
    """Repeats requests that were sent to brokers, on its own connections."""

    def __init__(self, random: Random, chance: float) -> None:
        self._random = random
        self._chance = chance
        self._heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.is_working = True
        self.repeated = 0

    def hear(self, host: str, frame: bytes) -> None:
        if self.is_working and self._random.random() < self._chance:
            self._heard.put_nowait((host, frame))

    async def run(self, ports: Ports) -> None:
        while True:
            host, frame = await self._heard.get()
            asyncio.get_running_loop().create_task(self._repeat(ports, host, frame, self._random.random() * 3.0))

    async def _repeat(self, ports: Ports, host: str, frame: bytes, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if not self.is_working:
            return
        try:
            connection = await ports.network.connect(host, PORT)
        except OSError:
            return
        self.repeated += 1
        try:
            await connection.send([frame])
            async with asyncio.timeout(2.0):
                await connection.receive_into(memoryview(bytearray(1024)))
        except (OSError, TimeoutError):
            pass
        finally:
            connection.close()


class OverheardConnection:
    """A connection to a broker whose requests are passed to the parrot."""

    def __init__(self, inner: Connection, host: str, parrot: Parrot) -> None:
        self._inner = inner
        self._host = host
        self._parrot = parrot
        self._sent = bytearray()

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        for buffer in buffers:
            assert not isinstance(buffer, FileSlice)
            self._sent += buffer
        while len(self._sent) >= 4:
            end = 4 + struct.unpack_from(">i", self._sent)[0]
            if len(self._sent) < end:
                break
            self._parrot.hear(self._host, bytes(self._sent[:end]))
            del self._sent[:end]
        await self._inner.send(buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class OverheardNetwork:
    """A network port that passes requests to brokers to the parrot; not those to controllers."""

    def __init__(self, inner: Any, parrot: Parrot) -> None:
        self._inner = inner
        self._parrot = parrot

    async def connect(self, host: str, port: int) -> Any:
        connection = await self._inner.connect(host, port)
        return OverheardConnection(connection, host, self._parrot) if port == PORT else connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# --- operators and nodes ----------------------------------------------------------------------------------------------


class Mover:
    """Moves partitions, and sometimes cancels a move."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_working = True
        self.moves = 0

    async def run(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        places += [TopicPartition(PURGED, 0), TopicPartition(AGING, 0)]
        while self.is_working:
            await asyncio.sleep(self._random.uniform(0.1, 2.0))
            target = self._random.sample(BROKERS, 3) if self._random.random() < 0.85 else None
            try:
                refused = await Admin(cluster).alter_reassignments(
                    {self._random.choice(places): target}, timeout_ms=2_000
                )
                self.moves += not any(refused.values())
            except ClientError:
                await asyncio.sleep(0.1)
        await cluster.close()


class Survivor(Keeper):
    """A node of which one log may be found damaged."""

    def __init__(self, node_id: int, book: Book, settings: NodeSettings, parrot: Parrot) -> None:
        super().__init__(node_id, book, settings)
        self._parrot = parrot
        self.rotten: str | None = None

    async def live(self, ports: Ports) -> None:
        await super().live(replace(ports, network=OverheardNetwork(ports.network, self._parrot)))  # type: ignore[arg-type]

    def _look_at_damage(self, damage: list[str]) -> None:
        rotten = self.rotten
        super()._look_at_damage([each for each in damage if rotten is None or rotten not in each])


class UpheavalTheatre(Theatre):
    """See the module."""

    def __init__(self, world: World, upheaval: Upheaval) -> None:
        durability = REPLICATED if upheaval.loss == REPLICATED else FSYNC
        super().__init__(world, durability)
        self._upheaval = upheaval
        streams = world.streams
        self.parrot = Parrot(streams.stream(PARROT), upheaval.duplicates)
        world.add(PARROT, self.parrot.run)
        voters = settings_for(NODES[0]).membership.voters
        fourth = settings_for(FOURTH)
        membership = replace(fourth.membership, is_controller=False, listener=None, voters=voters)
        self.servers[FOURTH] = Keeper(FOURTH, self.book, replace(fourth, membership=membership))
        self.names[FOURTH] = f"node-{FOURTH}"
        world.add(self.names[FOURTH], self.servers[FOURTH].live, tolerates=(OSError, CannotStart, ProtocolError))
        for node_id, server in self.servers.items():
            survivor = Survivor(node_id, self.book, server._settings, self.parrot)
            self.servers[node_id] = survivor
            world.nodes[self.names[node_id]].main = survivor.live
        self.ager = Writer(AGING_WRITER, streams.stream(AGING_WRITER), durability, AGING, 1)
        self.ager._configs |= AGING_CONFIGS
        self.writers.append(self.ager)
        world.add(AGING_WRITER, self.ager.run)
        # A replica that begins with an empty log, because everything was deleted, does not know the producer. If it
        # leads, it refuses an unknown producer for up to a minute (`sequence_gaps.py`).
        self.deleter = Deleter(streams.stream(DELETER), is_idempotent=False)
        world.nodes[DELETER].main = self.deleter.run
        self.mover = Mover(streams.stream(MOVER))
        world.add(MOVER, self.mover.run)
        for name in (*WRITERS, AGING_WRITER, DELETER):
            self._overhear(name)
        bystanders = [*WRITERS, AGING_WRITER, *READERS, DELETER, MOVER]
        self.nemesis = Nemesis(world, list(self.names.values()), bystanders)
        self.lost_disks = 0
        self.rot = 0
        self.expired = 0

    def _overhear(self, name: str) -> None:
        main = self.world.nodes[name].main

        async def overheard(ports: Ports) -> None:
            await main(replace(ports, network=OverheardNetwork(ports.network, self.parrot)))  # type: ignore[arg-type]

        self.world.nodes[name].main = overheard

    def play(self) -> Run:
        self.world.start(PARROT)
        self.world.start(AGING_WRITER)
        if self._upheaval.moves:
            self.world.start(MOVER)
        losses = {LOST_DISKS: self._lose_a_disk, ROT: self._let_rot}
        if self._upheaval.loss in losses:
            self.nemesis.add(losses[self._upheaval.loss](self.world.streams.stream("loss")))
        run = super().play()
        counts = {
            MOVES: self.mover.moves,
            EXPIRED: self.expired,
            LOST_DISKS: self.lost_disks,
            ROT: self.rot,
            DUPLICATES: self.parrot.repeated,
        }
        return run._replace(counts={**run.counts, **counts})

    def _black_out(self) -> None:
        self._end_upheaval()
        super()._black_out()

    def _restart_those_with_failed_logs(self) -> int:
        self._end_upheaval()
        return super()._restart_those_with_failed_logs()

    def _end_upheaval(self) -> None:
        self.parrot.is_working = self.mover.is_working = False

    # --- lost copies ----------------------------------------------------------------------------------------------

    async def _lose_a_disk(self, random: Random) -> None:
        """Restarts the fourth broker on an empty disk."""
        await asyncio.sleep(1.5 + random.random() * (TORMENT_S - 5.0))
        world, name = self.world, self.names[FOURTH]
        if not self._others_have_all(FOURTH):
            return
        world.kill(name)
        world.note("lost disk", name)
        world.nodes[name].disk = make_disk(name, world.options, world.streams, world.trace)
        self.lost_disks += 1
        await asyncio.sleep(random.random() * 2.0)
        if not world.nodes[name].is_up:
            world.start(name)

    async def _let_rot(self, random: Random) -> None:
        """Tries until it finds a log that other replicas hold completely."""
        while not self.rot:
            await asyncio.sleep(0.5 + random.random() * 2.0)
            node_id = random.choice(BROKERS)
            server, machine = self.servers[node_id], self.world.nodes[self.names[node_id]]
            node = server.node
            log = None if node is None or machine.life is None else node.storage.directory.logs.get(f"{TOPIC}-0")
            if node is None or log is None or not self._others_have_all(node_id):
                continue
            self.world.kill(machine.name)
            self._flip(node_id, node, log, random)
            await asyncio.sleep(random.random() * 2.0)
            if not machine.is_up:
                self.world.start(machine.name)

    def _flip(self, node_id: int, node: Node, log: Log, random: Random) -> None:
        """Flips a bit of the active segment, as far as the ledger covers it: sealed segments are not read at start."""
        disk, path = self.world.nodes[self.names[node_id]].disk, log.path_of(log.active, "log")
        entry = node.storage.directory.ledger.entries.get(log.identity.number)
        if entry is None or entry.segment_base != log.active.base_offset or not entry.position:
            return
        file = disk.open(path)
        before = file.read(0, file.size())
        position, bit = random.randrange(min(entry.position, len(before))), random.randrange(8)
        disk.flip_bit(path, position, bit)
        is_visible = file.read(0, file.size()) != before
        file.close()
        if not is_visible:  # an unsynced write covers it
            disk.flip_bit(path, position, bit)
            return
        server = self.servers[node_id]
        assert isinstance(server, Survivor)
        server.rotten = log.path
        self.rot += 1
        self.world.note("bit rot", self.names[node_id], path, position)

    def _others_have_all(self, node_id: int) -> bool:
        """Whether every partition has another replica in the ISR or ELR, so that a copy may be lost."""
        image = self._newest_image()
        partitions = [placed for topic in image.topics.values() for placed in topic.partitions.values()]
        return bool(partitions) and all(
            any(each != node_id for each in (*placed.isr, *placed.eligible_leader_replicas))
            for placed in partitions
            if node_id in placed.replicas
        )

    def _newest_image(self) -> Image:
        nodes = [server.node for server in self.servers.values() if server.node is not None]
        return max((node.member.controller for node in nodes), key=lambda controller: controller.position).image

    # --- the end --------------------------------------------------------------------------------------------------

    def _check_end(self) -> int:
        self.writers.remove(self.ager)
        if not self.ager.is_done:
            raise Broken("Convergence: the writer of the aging topic still waits for an answer")
        cuts = super()._check_end()
        self._check_aging(self._logs_of(AGING, 0))
        return cuts

    def _check_aging(self, logs: list[Log]) -> None:
        """Retention deletes independently on each replica; the rest is the same, and nothing else is missing."""
        for log in logs:
            self.expired = max(self.expired, log.start_offset)
            found = {
                record.offset: record.value
                for batch in read_batches(log, log.start_offset, log.written_end)
                for record in rows(BatchView(bytes(batch.whole)), 1 << 20)
            }
            for each in self.ager.acknowledged:
                if each.offset >= log.start_offset and found.get(each.offset) != each.value:
                    raise Broken(f"NoCommittedRecordLostGlobally: {each} of {AGING} was acknowledged, and is not there")
        if len({log.written_end for log in logs}) != 1:
            raise Broken(f"LogMatching: {AGING} ends with {[(log.written_end, log.high_watermark) for log in logs]}")


def run_seed(seed: int, *, story: list[str] | None = None) -> Run:
    """Runs one world of twenty virtual seconds."""
    upheaval = draw_upheaval(seed)
    make = CarefulWorld if upheaval.loss == REPLICATED else World
    with silence(), make(seed, options_for(seed), keeps_trace=story is not None) as world:
        if story is not None:
            world.trace.kept = story
        return UpheavalTheatre(world, upheaval).play()
