"""Worlds of whole servers with replicas by seed: three real nodes, and writers with acks=all and two in sync.

The writers send to a topic of three replicas while the nemesis kills, power-cuts, pauses and partitions the nodes, and
in half of the worlds cuts the power of all at once; in half of them the disk of one node is full for a while, in a
quarter the log of a partition fails on one node, which is restarted in the end. Each node is a rack of its own; readers
fetch from any node, follow a leader's preferred read replica, and read from followers. Invariants at every look: what a
node shows as committed never changes and is the same on all nodes, in all their lives, and so is what a reader is
given, which continues where it left off; leaders are in the ISR, fenced brokers are not. When the faults end, all
replicas are in sync again, all logs are equal to the byte, and hold every acknowledged record, once, at the offset that
was reported, in its writer's order, and every record that was read; and the readers reach the end. A deleter writes to
a topic of its own and deletes what it has written: no leader's log starts before an offset that an acknowledged
DeleteRecords reported.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic
from penstock.client.ports import ClientPorts
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import Delivery
from penstock.log.log import Log
from penstock.metadata.image import NO_LEADER, Image
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.records.header import BatchView, batches
from penstock.records.rows import rows
from penstock.server.node import Node
from penstock.server.partitions.partition import SETTLING_MS
from penstock.server.settings import CannotStart, NodeSettings, UpkeepSettings
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tests.simulation.three_servers import world as servers_world
from tests.simulation.three_servers.world import LOOK_S, NODES, PORT, Book, Broken, Server, options_for, silence

TOPIC: Final = "orders"
PARTITIONS: Final = 2
WRITERS: Final = ("writer-1", "writer-2")
READERS: Final = ("reader-0", "reader-1")
"""One for each partition, named for it."""
PURGED: Final = "purged"
"""A topic with one partition, of which records are deleted all the time."""
DELETER: Final = "deleter"
TORMENT_S: Final = 10.0
REST_S: Final = 6.0
"""How long the writers go on after the faults."""
END_S: Final = 20.0
UNDER_WAY_MAX: Final = 5
NUMBERS_PER_LIFE: Final = 100_000
FSYNC: Final = "fsync"
RECORD_BYTES_MAX: Final = 1 << 20
FULL: Final = "full disks"
FAILED: Final = "failed logs"
"""The names under which they are counted."""
FULL_S_MIN: Final = 1.5
RESERVE_BYTES: Final = 50_000
"""Enough for the metadata log of one world: a node without room for that fails."""
RETENTION_MS: Final = 2_000
"""The interval at which idle producers are expired."""


class Acknowledged(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Shown(NamedTuple):
    """A batch that some node has shown as committed."""

    last_offset: int
    epoch: int
    crc: int


class Writer:
    """Sends numbered records in order, several in flight, and notes the acknowledged ones."""

    def __init__(
        self, name: str, random: Random, durability: str = FSYNC, topic: str = TOPIC, partitions: int = PARTITIONS
    ) -> None:
        self._name = name
        self._random = random
        self._topic = topic
        self._partitions = partitions
        self._configs = {"min.insync.replicas": "2", **({} if durability == FSYNC else {"durability": durability})}
        self._lives = 0
        self.acknowledged: list[Acknowledged] = []
        self.troubles: Counter[str] = Counter()
        self.is_working = True
        self.is_done = False

    async def run(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        await self._make_topic(cluster)
        producer = Producer(cluster, delivery_timeout_ms=60_000, creates_topics=False)
        under_way: list[asyncio.Task[None]] = []
        number = self._lives * NUMBERS_PER_LIFE
        self._lives += 1
        while self.is_working:
            number += 1
            value = f"{self._name} {number:06d}".encode()
            try:
                delivery = await producer.send(self._topic, value, partition=number % self._partitions)
            except ClientError as error:  # the node may not know the topic yet
                self.troubles[type(error).__name__] += 1
                await asyncio.sleep(0.1)
                continue
            task = asyncio.get_running_loop().create_task(self._note(delivery, value))
            under_way = [each for each in [*under_way, task] if not each.done()]
            if len(under_way) >= UNDER_WAY_MAX:
                await under_way[0]
            await asyncio.sleep(self._random.uniform(0.0, 0.04))
        await asyncio.gather(*under_way)
        await producer.close()
        await cluster.close()
        self.is_done = True

    async def _make_topic(self, cluster: Cluster) -> None:
        await make_topic(cluster, self._topic, self._partitions, self._configs)

    async def _note(self, delivery: "asyncio.Future[Delivery]", value: bytes) -> None:
        try:
            place = await delivery
        except ClientError as error:
            self.troubles[type(error).__name__] += 1
            return
        self.acknowledged.append(Acknowledged(place.partition, place.offset, value))


async def make_topic(cluster: Cluster, name: str, partitions: int, configs: dict[str, str]) -> None:
    while True:
        try:
            await Admin(cluster).create_topic(name, partitions, 3, configs)
            return
        except ClientError as error:
            if "TOPIC_ALREADY_EXISTS" in str(error):
                return
            await asyncio.sleep(0.1)


class Deleter:
    """Writes records to a topic of its own, deletes some of them, and notes what is acknowledged."""

    def __init__(self, random: Random, *, is_idempotent: bool = True) -> None:
        self._random = random
        self._is_idempotent = is_idempotent
        self.low_watermark = 0
        """The highest low watermark in an acknowledgement of a DeleteRecords."""
        self.deletions = 0
        self.is_working = True
        self.is_done = False

    async def run(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        await make_topic(cluster, PURGED, 1, {"min.insync.replicas": "2"})
        is_idempotent = self._is_idempotent
        producer = Producer(cluster, delivery_timeout_ms=60_000, creates_topics=False, is_idempotent=is_idempotent)
        end_offset = 0
        while self.is_working:
            try:
                place = await (await producer.send(PURGED, b"to be deleted", partition=0))
                end_offset = place.offset + 1
                if self._random.random() < 0.5:
                    before = self._random.randint(min(self.low_watermark, end_offset), end_offset)
                    low_watermarks = await Admin(cluster).delete_records(PURGED, {0: before}, timeout_ms=3_000)
                    self.low_watermark = max(self.low_watermark, low_watermarks[0])
                    self.deletions += 1
            except ClientError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._random.uniform(0.0, 0.1))
        await producer.close()
        await cluster.close()
        self.is_done = True


class Reader:
    """Reads one partition from its beginning, at any replica, and notes the batches in `shown`."""

    def __init__(self, index: int, shown: dict[int, Shown], random: Random) -> None:
        self._index = index
        self._shown = shown
        self._random = random
        self._rack = ""
        self._place = random.choice(NODES)
        self._was_sent = False
        self.offset = 0
        self.breach = ""
        self.read_nearby = 0
        """How often a preferred read replica returned records."""

    async def run(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        while not self.breach:
            try:
                topic = await cluster.topic(TOPIC, timeout_ms=2_000)
                await self._read(cluster, topic)
            except ClientError:
                self._wander()
                await asyncio.sleep(0.05)

    def _wander(self) -> None:
        """Fetches from another node, and from another rack, from now on."""
        self._place, self._rack = self._random.choice(NODES), rack_of(self._random.choice(NODES))
        self._was_sent = False

    async def _read(self, cluster: Cluster, topic: Topic) -> None:
        part = FetchPartition(
            partition=self._index, fetch_offset=self.offset, current_leader_epoch=-1, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=self._random.choice((100, 500)),
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=[part])],
            rack_id=self._rack,
        )
        connection = await cluster.connection(self._place, "reader")
        response = await connection.ask(request, FetchResponse, timeout_ms=2_000)
        found = response.responses[0].partitions[0]
        if found.error_code is not ErrorCode.NONE or self._random.random() < 0.05:
            self._wander()
            await asyncio.sleep(0.05)
            await cluster.refresh(timeout_ms=2_000)
        elif found.preferred_read_replica >= 0:
            self._place, self._was_sent = found.preferred_read_replica, True
        else:
            before = self.offset
            self._take(found)
            self.read_nearby += self._was_sent and self.offset > before

    def _take(self, found: PartitionData) -> None:
        if found.records is None:
            return
        for batch in batches(bytes(found.records)):
            if batch.last_offset < self.offset:
                continue
            if batch.base_offset > self.offset:
                self.breach = f"ConsistentRead: nothing was given from {self.offset} to {batch.base_offset}"
                return
            seen = Shown(batch.last_offset, batch.leader_epoch, batch.crc)
            before = self._shown.setdefault(batch.base_offset, seen)
            if before != seen or batch.last_offset >= found.high_watermark:
                self.breach = f"ConsistentRead: a reader is given {seen} in {self._index}, before it was {before}"
                return
            self.offset = batch.last_offset + 1


class Keeper(Server):
    """A node, in all its lives, that is not checked before it has started."""

    async def live(self, ports: Ports) -> None:
        self.node = None
        await super().live(ports)


class Run(NamedTuple):
    """The result of a world."""

    acknowledged: int
    read_nearby: int
    """How often a follower returned records as the preferred read replica."""
    deletions: int
    """The number of acknowledged DeleteRecords."""
    epochs: int
    cuts: int
    """How often a log was truncated."""
    events: int
    counts: dict[str, int]
    trace_hash: str


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


def settings_for(node_id: int) -> NodeSettings:
    plain = servers_world.settings_for(node_id)
    short = {
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.backoff.ms": "200",
        "replica.socket.timeout.ms": "1500",
        "log.segment.bytes": "20000",
        "broker.rack": rack_of(node_id),
    }
    broker = BrokerSettings({**plain.broker.static, **short})
    return replace(plain, reserve_bytes=RESERVE_BYTES, broker=broker, upkeep=UpkeepSettings(retention_ms=RETENTION_MS))


class Theatre:
    """One world from its beginning to its end."""

    def __init__(self, world: World, durability: str = FSYNC) -> None:
        self.world = world
        self.book = Book()
        self.servers = {node_id: Keeper(node_id, self.book, settings_for(node_id)) for node_id in NODES}
        self.names = {node_id: f"node-{node_id}" for node_id in NODES}
        for node_id, name in self.names.items():
            world.add(name, self.servers[node_id].live, tolerates=(OSError, CannotStart, ProtocolError))
        self.writers = [Writer(name, world.streams.stream(name), durability) for name in WRITERS]
        for name, writer in zip(WRITERS, self.writers, strict=True):
            world.add(name, writer.run)
        self._shown: dict[int, dict[int, Shown]] = {index: {} for index in range(PARTITIONS)}
        self.readers = [
            Reader(index, self._shown[index], world.streams.stream(READERS[index])) for index in self._shown
        ]
        for name, reader in zip(READERS, self.readers, strict=True):
            world.add(name, reader.run)
        self.deleter = Deleter(world.streams.stream(DELETER))
        world.add(DELETER, self.deleter.run)
        self.nemesis = Nemesis(world, list(self.names.values()), [*WRITERS, *READERS, DELETER])
        self._purged_epoch = -1
        self._seen: dict[tuple[int, int], tuple[Log, int]] = {}
        """How far a log of a node has been checked."""
        self._epochs: set[tuple[int, int]] = set()

    def play(self) -> Run:
        world = self.world
        for name in (*self.names.values(), *WRITERS, *READERS, DELETER):
            world.start(name)
        self._run(1.5)
        self.nemesis.torment()
        full_disks = self._run_with_a_full_disk(TORMENT_S - 1.5)
        failed_logs = self._restart_those_with_failed_logs()
        is_dark = world.streams.stream("blackout").random() < 0.5
        if is_dark:
            self._black_out()
        self.nemesis.calm()
        world.network.settings.loss = world.network.settings.straggler = 0.0
        world.options.slow_sync = 0.0
        before = self._acknowledged
        self._run(REST_S)
        for writer in self.writers:
            writer.is_working = False
        self.deleter.is_working = False
        self._run(END_S - TORMENT_S - REST_S)
        if not self.deleter.is_done:
            # A replica that lost its log where everything was deleted does not know the producer; if it leads, it may
            # refuse the producer's batches for a minute (`sequence_gaps.py`).
            self._run(SETTLING_MS / 1000)
        events, trace_hash = world.loop.events, world.trace_hash
        if self._acknowledged < before + 10:
            raise Broken(f"Convergence: only {self._acknowledged - before} records were written after all was mended")
        cuts = self._check_end()
        counts = {
            servers_world.FAULTS: self.nemesis.faults,
            "power cuts of all nodes at once": int(is_dark),
            FULL: full_disks,
            FAILED: failed_logs,
        }
        read_nearby = sum(reader.read_nearby for reader in self.readers)
        deletions = self.deleter.deletions
        return Run(self._acknowledged, read_nearby, deletions, len(self._epochs), cuts, events, counts, trace_hash)

    def _black_out(self) -> None:
        for name in self.names.values():
            self.world.cut_power(name)

    @property
    def _acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    def _run_with_a_full_disk(self, seconds: float) -> int:
        """Fills a disk in half of the worlds, at some time; returns how many. In a quarter a log fails before that."""
        random = self.world.streams.stream("failing log")
        if random.random() < 0.25:
            until_s = random.uniform(0.0, seconds / 2)
            self._run(until_s)
            seconds -= until_s
            self._let_a_log_fail(random)
        random = self.world.streams.stream("full disk")
        if random.random() < 0.5:
            self._run(seconds)
            return 0
        before_s = random.uniform(0.0, seconds - FULL_S_MIN)
        full_s = random.uniform(FULL_S_MIN, seconds - before_s)
        name = random.choice(list(self.names.values()))
        self._run(before_s)
        disk = self.world.nodes[name].disk
        disk.faults.capacity_bytes = disk._used()
        self.world.note("full", name)
        self._run(full_s)
        disk.faults.capacity_bytes = None
        self.world.note("emptied", name)
        self._run(seconds - before_s - full_s)
        return 1

    def _let_a_log_fail(self, random: Random) -> None:
        """Makes the next write to a log fail, or the next sync, if the node is up."""
        node_id, index = random.choice(NODES), random.randrange(PARTITIONS)
        operation = random.choice(("write", "sync"))
        node, machine = self.servers[node_id].node, self.world.nodes[self.names[node_id]]
        log = None if node is None or machine.life is None else node.storage.directory.logs.get(f"{TOPIC}-{index}")
        if log is not None:
            machine.disk.fail_next(operation, log.path_of(log.active, "log"))
            self.world.note("fails", machine.name, f"{operation} {log.path}")

    def _restart_those_with_failed_logs(self) -> int:
        """Restarts nodes with failed logs, as an operator does; returns the number of such logs."""
        found = 0
        for node_id, name in self.names.items():
            node, machine = self.servers[node_id].node, self.world.nodes[name]
            machine.disk.fail_nothing()
            if node is None or machine.life is None:
                continue
            failed = [log for log in node.storage.directory.logs.values() if log.offline_reason is not None]
            if failed:
                found += len(failed)
                self.world.kill(name)
        return found

    def _run(self, seconds: float) -> None:
        end_s = self.world.loop.time() + seconds
        while self.world.loop.time() < end_s:
            self.world.run(min(LOOK_S, max(0.001, end_s - self.world.loop.time())))
            for node_id, server in self.servers.items():
                server.look()
                node = server.node
                if node is not None and self.world.nodes[self.names[node_id]].life is not None:
                    self._look(node_id, node)
            self._look_at_purged()
            for breach in (*self.book.breaches, *(each.breach for each in self.readers if each.breach)):
                raise Broken(breach)

    # --- at every look --------------------------------------------------------------------------------------------

    def _look(self, node_id: int, node: Node) -> None:
        image = node.member.controller.image
        self._look_at_image(image)
        for index in range(PARTITIONS):
            log = node.storage.directory.logs.get(f"{TOPIC}-{index}")
            if log is None or log.offline_reason is not None:
                continue
            known, seen = self._seen.get((node_id, index), (log, 0))
            if known is not log:  # another life of the node: check all of it again
                seen = 0
            if log.high_watermark > seen:
                self._look_at_log(node_id, index, log, max(seen, log.start_offset))
                seen = log.high_watermark
            self._seen[node_id, index] = (log, seen)

    def _look_at_purged(self) -> None:
        """The newest leader has no records whose deletion was acknowledged."""
        alive = [
            server.node
            for node_id, server in self.servers.items()
            if server.node is not None and self.world.nodes[self.names[node_id]].life is not None
        ]
        for node in alive:
            topic = node.member.controller.image.topics.get(PURGED)
            if topic is not None:
                self._purged_epoch = max(self._purged_epoch, topic.partitions[0].leader_epoch)
        for node in alive:
            partition = node.broker.partitions.named(PURGED, 0)
            if partition is None or partition.leader_epoch != self._purged_epoch:
                continue
            if partition.log.start_offset < self.deleter.low_watermark:
                raise Broken(
                    f"DeletedStaysDeleted: the log of a leader starts at {partition.log.start_offset}, "
                    f"but {self.deleter.low_watermark} was acknowledged"
                )

    def _look_at_image(self, image: Image) -> None:
        topic = image.topics.get(TOPIC)
        for index, placed in ({} if topic is None else topic.partitions).items():
            self._epochs.add((index, placed.leader_epoch))
            isr, elr = frozenset(placed.isr), frozenset(placed.eligible_leader_replicas)
            if placed.leader != NO_LEADER and placed.leader not in isr:
                raise Broken(f"LeaderInIsr: {index}: {placed}")
            if any(image.brokers[each].is_fenced for each in placed.isr):
                raise Broken(f"ValidControllerState: a fenced broker is in sync for {index}: {placed}")
            if isr & elr or not (isr | elr) <= frozenset(placed.replicas):
                raise Broken(f"ValidControllerIsrAndElr: {index}: {placed}")

    def _look_at_log(self, node_id: int, index: int, log: Log, offset: int) -> None:
        shown = self._shown[index]
        for batch in read_batches(log, offset, log.high_watermark):
            found = Shown(batch.last_offset, batch.leader_epoch, batch.crc)
            before = shown.setdefault(batch.base_offset, found)
            if before != found:
                raise Broken(
                    f"ConsistentRead: node {node_id} shows {found} in {index}, where {before} was shown before"
                )

    # --- the end --------------------------------------------------------------------------------------------------

    def _check_end(self) -> int:
        if self.book.failures:
            raise Broken(f"a node went out: {self.book.failures}")
        nodes = [server.node for server in self.servers.values()]
        if not all(node is not None and node.health.is_serving for node in nodes):
            raise Broken("Convergence: a node does not serve in the end")
        if not self.deleter.is_done or not all(writer.is_done for writer in self.writers):
            raise Broken("Convergence: a writer still waits for an answer, long after all was mended")
        cuts = 0
        for index in range(PARTITIONS):
            logs = self._logs_of(TOPIC, index)
            cuts += sum(log.cuts for log in logs)
            self._check_partition(index, logs)
        starts = [log.start_offset for log in self._logs_of(PURGED, 0)]
        if min(starts) < self.deleter.low_watermark:
            raise Broken(f"DeletedStaysDeleted: logs start at {starts}, not at {self.deleter.low_watermark}")
        return cuts

    def _logs_of(self, topic: str, index: int) -> list[Log]:
        """The logs of all replicas, which must be in sync."""
        node = self.servers[NODES[0]].node
        assert node is not None
        placed = node.member.controller.image.topics[topic].partitions[index]
        if len(placed.isr) != len(NODES) or sorted(placed.isr) != sorted(placed.replicas):
            raise Broken(f"Convergence: {topic}-{index} ends with {placed}")
        nodes = [self.servers[each].node for each in placed.replicas]
        logs = [node.storage.directory.logs.get(f"{topic}-{index}") for node in nodes if node is not None]
        found = [log for log in logs if log is not None and log.offline_reason is None]
        if len(found) != len(NODES):
            raise Broken(f"Convergence: {topic}-{index} is in sync on {placed.isr}, but has {found}")
        return found

    def _check_partition(self, index: int, logs: list[Log]) -> None:
        contents = [[bytes(batch.whole) for batch in read_batches(log, 0, log.written_end)] for log in logs]
        if not contents[0] == contents[1] == contents[2]:
            raise Broken(f"LogMatching: {index} ends with {[(log.written_end, log.high_watermark) for log in logs]}")
        self._check_what_was_read(index, logs[0], contents[0])
        found = {record.offset: record.value for batch in contents[0] for record in rows(BatchView(batch), 1 << 20)}
        times = Counter(found.values())
        for writer in self.writers:
            mine = [each for each in writer.acknowledged if each.partition == index]
            for each in mine:
                if found.get(each.offset) != each.value:
                    raise Broken(f"NoCommittedRecordLostGlobally: {each} was acknowledged, and is not there")
                if times[each.value] != 1:
                    raise Broken(f"Once: {each.value!r} is there {times[each.value]} times")
            in_order = [each.offset for each in sorted(mine, key=lambda each: each.value)]
            if in_order != sorted(in_order):
                raise Broken(f"the records of a writer are not in their order in {index}")

    def _check_what_was_read(self, index: int, log: Log, content: list[bytes]) -> None:
        there = {view.base_offset: view.crc for view in map(BatchView, content)}
        reader = self.readers[index]
        if reader.offset != log.high_watermark:
            raise Broken(f"Convergence: the reader of {index} is at {reader.offset}, and not at {log.high_watermark}")
        for offset, shown in self._shown[index].items():
            if there.get(offset) != shown.crc:
                raise Broken(f"NoCommittedRecordLostGlobally: {shown} was shown at {offset} in {index}, and is gone")


def read_batches(log: Log, offset: int, end_offset: int) -> Iterator[BatchView]:
    """The batches from the one that holds an offset on."""
    while offset < end_offset:
        part = log.read(offset, RECORD_BYTES_MAX, limit=end_offset)
        if part is None:
            return
        data = bytes(part.file.read(part.position, part.size_bytes))
        part.release()
        for batch in batches(data):
            yield batch
            offset = batch.last_offset + 1


def run_seed(seed: int, *, story: list[str] | None = None) -> Run:
    """Runs one world of twenty virtual seconds."""
    with silence(), World(seed, options_for(seed), keeps_trace=story is not None) as world:
        if story is not None:
            world.trace.kept = story
        return Theatre(world).play()
