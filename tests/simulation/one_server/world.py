"""Whole worlds by seed: one real node on a lossy disk, several real clients, and all kinds of faults.

A world lasts ten virtual seconds or more. First there are faults; then they are healed, producers reach their goal, the
node goes down once more, and an auditor reads everything from the start and checks every topic. All acknowledged
records must be there, once and in order; the histories of all clients are checked by `penstock.verify`.
"""

import asyncio
from typing import Final, NamedTuple

from penstock.client.admin.admin import Admin
from penstock.client.consumer.consumer import Consumer, OutOfRangeName
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment
from penstock.client.producer.producer import Producer
from penstock.model.errors import ErrorCode
from penstock.server.quorum.metadata_log import METADATA_LOG
from penstock.simulator.node import Ports
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World
from tests.simulation.one_server.clients import Follower, Gardener, Sender, SessionReader, check_topics, label, rows_of
from tests.simulation.one_server.faults import Misfortune
from tests.simulation.one_server.operated_node import OperatedNode
from tests.simulation.one_server.world_state import (
    LOOSE,
    SEGMENT_BYTES,
    STRICT,
    Broken,
    Ears,
    KnownTopic,
    Script,
    WorldState,
)

VIRTUAL_S: Final = 10.0
CALM_AT_S: Final = 6.5
LIMIT_S: Final = 30.0
"""A world that has not ended by then is stuck."""
ACKNOWLEDGED_MIN: Final = 200
PROBE_S: Final = 2.0
"""The time limit for a record to reach a waiting reader, without faults."""


class Poor(Exception):
    """The harness did too little: few records were acknowledged, or nothing crashed."""


class Run(NamedTuple):
    """The result of a world."""

    trace_hash: str
    events: int
    virtual_s: float
    acknowledged: int
    read: int
    counts: dict[str, int]
    timeline: list[str]

    @property
    def crashes(self) -> int:
        return self.counts.get("kill", 0) + self.counts.get("power cut", 0)


class Drama:
    """One world from its beginning to its end."""

    def __init__(self, world: World, script: Script, *, fills_disk: bool) -> None:
        self.world = world
        self.script = script
        world.network.give_up_s = script.give_up_s
        self.state = WorldState(world, script)
        self.operated_node = OperatedNode(self.state)
        self.random = world.streams.stream("drama")
        self.senders: list[Sender] = []
        self.readers: list[Follower | SessionReader] = []
        self.gardeners: list[Gardener] = []
        self._cast()
        mortal = [*(each.name for each in self.senders), *(each.name for each in self.readers)]
        self.clients = [*mortal, *(each.name for each in self.gardeners)]
        self.misfortune = Misfortune(self.state, self.operated_node, self.clients, mortal, fills_disk=fills_disk)

    def _cast(self) -> None:
        state, random, script = self.state, self.random, self.script
        for number in range(random.choice((2, 2, 3))):
            goal = random.randint(110, 140)
            self.senders.append(
                Sender(state, state.strict, f"producer-{number}", STRICT, script.strict_partitions, -1, goal)
            )
        acks = random.choice((0, 1, 1))
        self.senders.append(Sender(state, state.loose, "loose", LOOSE, script.loose_partitions, acks, 40))
        self.readers.append(Follower(state, state.strict, "follower", STRICT, script.strict_partitions))
        self.readers.append(Follower(state, state.loose, "onlooker", LOOSE, script.loose_partitions))
        if script.has_session_reader:
            self.readers.append(SessionReader(state, state.strict, "session", STRICT, script.strict_partitions))
        if script.has_gardener:
            self.gardeners.append(Gardener(state, "gardener"))
        for each in (*self.senders, *self.readers, *self.gardeners):
            self.world.add(each.name, each.run)
        for name in ("founder", "auditor"):
            self.world.add(name, self._found if name == "founder" else self._audit)

    # --- the phases of a world

    async def play(self) -> None:
        state, world = self.state, self.world
        self.operated_node.start()
        operator = asyncio.create_task(self.operated_node.operate())
        operator.add_done_callback(self._hear)
        world.start("founder")
        await state.until_finished(["founder"])
        for name in self.clients:
            world.start(name)
        self.misfortune.begin()
        await asyncio.sleep(CALM_AT_S - state.time_s)
        state.is_calm = True
        self.misfortune.calm()
        readers = [each.name for each in self.readers]
        await state.until_finished([name for name in self.clients if name not in readers])
        await self._go_down()
        world.start("auditor")
        await state.until_finished(["auditor", *readers])
        self.operated_node.look()
        await asyncio.sleep(max(0.0, VIRTUAL_S - state.time_s))
        operator.cancel()

    def _hear(self, operator: "asyncio.Task[None]") -> None:
        if not operator.cancelled() and (error := operator.exception()) is not None:
            self.world.loop.call_exception_handler({"message": "the operator found", "exception": error})

    async def _go_down(self) -> None:
        await self.operated_node.until_up(self.operated_node.lives)
        next_life = self.operated_node.lives + 1
        match self.script.ends_with:
            case "power cut":
                self.operated_node.cut_power(0.05)
            case "kill":
                self.operated_node.kill(0.05)
            case "clean stop":
                self.operated_node.stop(0.05)
        await self.operated_node.until_up(next_life)

    async def _found(self, ports: Ports) -> None:
        """Creates the two topics, before any fault."""
        script, topics = self.script, self.state.topics
        cluster = self.state.cluster(ports)
        admin = Admin(cluster)
        strict = {SEGMENT_BYTES: str(script.strict_segment_bytes), "retention.ms": "-1"}
        loose = {
            SEGMENT_BYTES: str(script.loose_segment_bytes),
            "retention.ms": "-1",
            "retention.bytes": str(script.loose_retention_bytes),
        }
        for name, count, configs in (
            (STRICT, script.strict_partitions, strict),
            (LOOSE, script.loose_partitions, loose),
        ):
            try:
                await admin.create_topic(name, count, configs=configs)
            except Refused as refused:
                if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # else a first attempt was carried out after all
                    raise
            topics[name] = KnownTopic(count, configs)
        await cluster.close()
        self.state.finish(ports.name)

    # --- the end

    async def _audit(self, ports: Ports) -> None:
        state = self.state
        cluster = state.cluster(ports)
        admin = Admin(cluster)
        await check_topics(state, admin)
        self._check_logs()
        await self._probe(admin)
        ends: dict[str, int] = {}
        for topic, book in ((STRICT, state.strict), (LOOSE, state.loose)):
            for moment, word in ((Moment.EARLIEST, "earliest"), (Moment.LATEST, "latest")):
                found = await admin.offsets(topic, moment)
                asked = book.recorder.invoke("auditor", "list_offsets", [[label(topic, at), word] for at in found])
                asked.ok([[label(topic, at), word, each.offset] for at, each in found.items()])
                for at, each in found.items():
                    self._note_end(topic, label(topic, at), word, each.offset, ends)
            # Retention of the loose topic may go on: deletions that a full disk delayed happen once there is room.
            out_of_range: OutOfRangeName = "earliest" if topic == LOOSE else "error"
            consumer = Consumer(cluster, FetchSettings(wait_ms_max=100), out_of_range=out_of_range)
            await consumer.assign_topic(topic, "earliest", until_end=True)
            while (piece := await consumer.fetch_records()) is not None:
                book.recorder.invoke("auditor", "poll").ok(rows_of(label(*piece.partition), piece.records))
            await consumer.close()
        for at, each in (await admin.offsets(LOOSE, Moment.EARLIEST)).items():
            self._note_end(LOOSE, label(LOOSE, at), "earliest", each.offset, ends)
        await cluster.close()
        state.tell("auditor", f"has read everything: {ends}")
        state.ends = ends
        state.finish(ports.name)

    def _note_end(self, topic: str, place: str, word: str, offset: int, ends: dict[str, int]) -> None:
        state = self.state
        if word == "latest":
            ends[place] = offset
        elif topic == LOOSE:
            state.loose_starts[place] = offset
            if offset and self.script.loose_retention_bytes < 0:
                raise Broken(f"{place} begins at {offset}, although nobody deleted anything")
        elif not state.cut_done.get(place, 0) <= offset <= state.cut_asked.get(place, 0):
            wanted = f"{state.cut_done.get(place, 0)} to {state.cut_asked.get(place, 0)}"
            raise Broken(f"{place} begins at {offset}, but was to begin at {wanted}")

    def _check_logs(self) -> None:
        """The node has the logs of all topics, and no others."""
        node, state = self.operated_node.node, self.state
        assert node is not None
        found = sorted(name for name in node.storage.directory.logs if name.rpartition("-")[0] not in state.unsure)
        wanted = [label(name, at) for name, topic in state.topics.items() for at in range(topic.partitions)]
        if found != sorted([METADATA_LOG, *wanted]):
            raise Broken(f"the node has logs {found}, but should have those of {sorted(wanted)}")

    async def _probe(self, admin: Admin) -> None:
        """A reader that waits at the end of a partition is woken by a record, and not by its time-out."""
        state, cluster = self.state, admin.cluster
        consumer = Consumer(cluster, FetchSettings(wait_ms_max=30_000))
        producer = Producer(cluster, creates_topics=False)
        await consumer.assign_topic(STRICT, "latest")
        await asyncio.sleep(0.1)
        for partition in range(self.script.strict_partitions):
            place, value = label(STRICT, partition), f"probe.{partition}"
            operation = state.strict.recorder.invoke("auditor", "send", [[place, None, value]])
            try:
                async with asyncio.timeout(PROBE_S):
                    delivery = await producer.publish(STRICT, value.encode(), partition=partition)
                    operation.ok([[place, delivery.offset, value]])
                    found = await consumer.fetch_records()
            except TimeoutError:
                raise Broken(f"a record did not get through {place} within {PROBE_S} s of calm") from None
            assert found is not None
            if found.partition != TopicPartition(STRICT, partition) or found.records[0].value != value.encode():
                raise Broken(f"a reader at the end of {place} got {found}")
            state.strict.acknowledged += 1
        await producer.close()
        await consumer.close()

    def judge(self) -> int:
        """Raises if an invariant was broken; returns the number of records that were read."""
        state = self.state
        if state.trouble:
            raise Broken("the node made a mistake: " + "; ".join(state.trouble))
        if nonsense := [sentence for cluster in state.clusters for sentence in cluster.nonsense()]:
            raise Broken("a client did not understand the node: " + "; ".join(nonsense))
        reports = state.reports()
        for name, report in zip(("strict", "loose"), reports, strict=True):
            if not report.is_clean:
                raise Broken(f"the {name} history is not clean:\n{report.text()}")
        return sum(report.counts.records_read for report in reports)


def run_seed(
    seed: int, *, fills_disk: bool = True, timeline: list[str] | None = None, trace: list[str] | None = None
) -> Run:
    """Runs one world. `timeline` and `trace` receive its events as they happen, also if it fails."""
    script = Script(Streams(seed).stream("script"))
    with World(seed, script.options, keeps_trace=trace is not None) as world:
        if trace is not None:
            world.trace.kept = trace
        drama = Drama(world, script, fills_disk=fills_disk)
        state = drama.state
        if timeline is not None:
            state.timeline = timeline
        try:
            with Ears(state):
                world.run_until(drama.play(), limit_s=LIMIT_S)
        finally:
            world.trace.digest()  # completes `trace`
        read = drama.judge()
        acknowledged = state.strict.acknowledged + state.loose.acknowledged
        run = Run(
            world.trace_hash, world.loop.events, state.time_s, acknowledged, read, dict(state.counts), state.timeline
        )
    if run.acknowledged < ACKNOWLEDGED_MIN or run.crashes < 1:
        raise Poor(f"seed {seed}: {run.acknowledged} records acknowledged, {run.crashes} crashes")
    return run
