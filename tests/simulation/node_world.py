"""Whole worlds by seed: one real node on a lossy disk, several real clients, and everything that can go wrong.

A world lives for ten virtual seconds and more. First there are faults; then it calms down, producers come to their
goal, the node goes down once more, and an auditor reads everything from the start and looks at every topic. Whatever
was acknowledged must be there, once and in order; the histories of all clients are held against `penstock.verify`.
"""

import asyncio
from typing import Final, NamedTuple

from penstock.client.admin import Admin
from penstock.client.consumer import Consumer, OutOfRangeName
from penstock.client.errors import Refused
from penstock.client.fetcher import FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment
from penstock.client.producer import Producer
from penstock.model.errors import ErrorCode
from penstock.server.metadata_log import METADATA_LOG
from penstock.simulator.node import Ports
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World
from tests.simulation.node_clients import Follower, Gardener, Sender, SessionReader, check_topics, label, rows_of
from tests.simulation.node_faults import Misfortune
from tests.simulation.node_house import House
from tests.simulation.node_stage import LOOSE, SEGMENT_BYTES, STRICT, Broken, Ears, KnownTopic, Script, Stage

VIRTUAL_S: Final = 10.0
CALM_AT_S: Final = 6.5
LIMIT_S: Final = 30.0
"""A world that has not come to its end by then is stuck."""
ACKNOWLEDGED_MIN: Final = 200
PROBE_S: Final = 2.0
"""In which a record must travel from a producer to a reader who waits, when all is well."""


class Poor(Exception):
    """The harness did not do what it must: too little was acknowledged, or nothing crashed."""


class Run(NamedTuple):
    """What is left of a world."""

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
        self.stage = Stage(world, script)
        self.house = House(self.stage)
        self.random = world.streams.stream("drama")
        self.senders: list[Sender] = []
        self.readers: list[Follower | SessionReader] = []
        self.gardeners: list[Gardener] = []
        self._cast()
        mortal = [*(each.name for each in self.senders), *(each.name for each in self.readers)]
        self.clients = [*mortal, *(each.name for each in self.gardeners)]
        self.misfortune = Misfortune(self.stage, self.house, self.clients, mortal, fills_disk=fills_disk)

    def _cast(self) -> None:
        stage, random, script = self.stage, self.random, self.script
        for number in range(random.choice((2, 2, 3))):
            goal = random.randint(110, 140)
            self.senders.append(
                Sender(stage, stage.strict, f"producer-{number}", STRICT, script.strict_partitions, -1, goal)
            )
        acks = random.choice((0, 1, 1))
        self.senders.append(Sender(stage, stage.loose, "loose", LOOSE, script.loose_partitions, acks, 40))
        self.readers.append(Follower(stage, stage.strict, "follower", STRICT, script.strict_partitions))
        self.readers.append(Follower(stage, stage.loose, "onlooker", LOOSE, script.loose_partitions))
        if script.has_session_reader:
            self.readers.append(SessionReader(stage, stage.strict, "session", STRICT, script.strict_partitions))
        if script.has_gardener:
            self.gardeners.append(Gardener(stage, "gardener"))
        for each in (*self.senders, *self.readers, *self.gardeners):
            self.world.add(each.name, each.run)
        for name in ("founder", "auditor"):
            self.world.add(name, self._found if name == "founder" else self._audit)

    # --- the course of events

    async def play(self) -> None:
        stage, world = self.stage, self.world
        self.house.start()
        operator = asyncio.create_task(self.house.operate())
        operator.add_done_callback(self._hear)
        world.start("founder")
        await stage.until_finished(["founder"])
        for name in self.clients:
            world.start(name)
        self.misfortune.begin()
        await asyncio.sleep(CALM_AT_S - stage.time_s)
        stage.is_calm = True
        self.misfortune.calm()
        readers = [each.name for each in self.readers]
        await stage.until_finished([name for name in self.clients if name not in readers])
        await self._go_down()
        world.start("auditor")
        await stage.until_finished(["auditor", *readers])
        self.house.look()
        await asyncio.sleep(max(0.0, VIRTUAL_S - stage.time_s))
        operator.cancel()

    def _hear(self, operator: "asyncio.Task[None]") -> None:
        if not operator.cancelled() and (error := operator.exception()) is not None:
            self.world.loop.call_exception_handler({"message": "the operator found", "exception": error})

    async def _go_down(self) -> None:
        await self.house.until_up(self.house.lives)
        next_life = self.house.lives + 1
        match self.script.ends_with:
            case "power cut":
                self.house.cut_power(0.05)
            case "kill":
                self.house.kill(0.05)
            case "clean stop":
                self.house.stop(0.05)
        await self.house.until_up(next_life)

    async def _found(self, ports: Ports) -> None:
        """Makes the two topics, before anything goes wrong."""
        script, topics = self.script, self.stage.topics
        cluster = self.stage.cluster(ports)
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
                if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # then a first try was carried out after all
                    raise
            topics[name] = KnownTopic(count, configs)
        await cluster.close()
        self.stage.finish(ports.name)

    # --- the end

    async def _audit(self, ports: Ports) -> None:
        stage = self.stage
        cluster = stage.cluster(ports)
        admin = Admin(cluster)
        await check_topics(stage, admin)
        self._check_logs()
        await self._probe(admin)
        ends: dict[str, int] = {}
        for topic, book in ((STRICT, stage.strict), (LOOSE, stage.loose)):
            for moment, word in ((Moment.EARLIEST, "earliest"), (Moment.LATEST, "latest")):
                found = await admin.offsets(topic, moment)
                asked = book.recorder.invoke("auditor", "list_offsets", [[label(topic, at), word] for at in found])
                asked.ok([[label(topic, at), word, each.offset] for at, each in found.items()])
                for at, each in found.items():
                    self._note_end(topic, label(topic, at), word, each.offset, ends)
            # Retention of the loose topic may go on: what a full disk has put off is deleted whenever there is room.
            out_of_range: OutOfRangeName = "earliest" if topic == LOOSE else "error"
            consumer = Consumer(cluster, FetchSettings(wait_ms_max=100), out_of_range=out_of_range)
            await consumer.assign_topic(topic, "earliest", until_end=True)
            while (piece := await consumer.fetch_records()) is not None:
                book.recorder.invoke("auditor", "poll").ok(rows_of(label(*piece.partition), piece.records))
            await consumer.close()
        for at, each in (await admin.offsets(LOOSE, Moment.EARLIEST)).items():
            self._note_end(LOOSE, label(LOOSE, at), "earliest", each.offset, ends)
        await cluster.close()
        stage.tell("auditor", f"has read everything: {ends}")
        stage.ends = ends
        stage.finish(ports.name)

    def _note_end(self, topic: str, place: str, word: str, offset: int, ends: dict[str, int]) -> None:
        stage = self.stage
        if word == "latest":
            ends[place] = offset
        elif topic == LOOSE:
            stage.loose_starts[place] = offset
            if offset and self.script.loose_retention_bytes < 0:
                raise Broken(f"{place} begins at {offset}, although nobody deleted anything")
        elif not stage.cut_done.get(place, 0) <= offset <= stage.cut_asked.get(place, 0):
            wanted = f"{stage.cut_done.get(place, 0)} to {stage.cut_asked.get(place, 0)}"
            raise Broken(f"{place} begins at {offset}, but was to begin at {wanted}")

    def _check_logs(self) -> None:
        """The node has the logs of all topics, and no others."""
        node, stage = self.house.node, self.stage
        assert node is not None
        found = sorted(name for name in node.directory.logs if name.rpartition("-")[0] not in stage.unsure)
        wanted = [label(name, at) for name, topic in stage.topics.items() for at in range(topic.partitions)]
        if found != sorted([METADATA_LOG, *wanted]):
            raise Broken(f"the node has logs {found}, but should have those of {sorted(wanted)}")

    async def _probe(self, admin: Admin) -> None:
        """Whoever waits at the end of a partition is woken by a record, and not by the end of its patience."""
        stage, cluster = self.stage, admin.cluster
        consumer = Consumer(cluster, FetchSettings(wait_ms_max=30_000))
        producer = Producer(cluster, creates_topics=False)
        await consumer.assign_topic(STRICT, "latest")
        await asyncio.sleep(0.1)
        for partition in range(self.script.strict_partitions):
            place, value = label(STRICT, partition), f"probe.{partition}"
            operation = stage.strict.recorder.invoke("auditor", "send", [[place, None, value]])
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
            stage.strict.acknowledged += 1
        await producer.close()
        await consumer.close()

    def judge(self) -> int:
        """Raises if a promise was broken; the number of records that were read."""
        stage = self.stage
        if stage.trouble:
            raise Broken("the node made a mistake: " + "; ".join(stage.trouble))
        if nonsense := [sentence for cluster in stage.clusters for sentence in cluster.nonsense()]:
            raise Broken("a client did not understand the node: " + "; ".join(nonsense))
        reports = stage.reports()
        for name, report in zip(("strict", "loose"), reports, strict=True):
            if not report.is_clean:
                raise Broken(f"the {name} history is not clean:\n{report.text()}")
        return sum(report.counts.records_read for report in reports)


def run_seed(
    seed: int, *, fills_disk: bool = True, timeline: list[str] | None = None, trace: list[str] | None = None
) -> Run:
    """One world. `timeline` and `trace` receive its story as it unfolds, also if it ends badly."""
    script = Script(Streams(seed).stream("script"))
    with World(seed, script.options, keeps_trace=trace is not None) as world:
        if trace is not None:
            world.trace.kept = trace
        drama = Drama(world, script, fills_disk=fills_disk)
        stage = drama.stage
        if timeline is not None:
            stage.timeline = timeline
        try:
            with Ears(stage):
                world.run_until(drama.play(), limit_s=LIMIT_S)
        finally:
            world.trace.digest()  # so that nothing is missing from `trace`
        read = drama.judge()
        acknowledged = stage.strict.acknowledged + stage.loose.acknowledged
        run = Run(
            world.trace_hash, world.loop.events, stage.time_s, acknowledged, read, dict(stage.counts), stage.timeline
        )
    if run.acknowledged < ACKNOWLEDGED_MIN or run.crashes < 1:
        raise Poor(f"seed {seed}: {run.acknowledged} records acknowledged, {run.crashes} crashes")
    return run
