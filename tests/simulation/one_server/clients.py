"""The clients of a node's world: producers, readers, a reader with a fetch session, and an administrator of topics.

All of them are the real client on the virtual network; requests and outcomes go into a history. A client that is killed
starts afresh: its sends without a response stay uncertain, and its readers have no position.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import TypeAlias

from penstock.client.admin.admin import Admin
from penstock.client.admin.configs import ConfigKind
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetched import Fetched, whole_batches
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError, DeliveryTimedOut, Refused, Unreachable
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation, Moment
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import Delivery
from penstock.model.errors import ErrorCode
from penstock.records.rows import Record
from penstock.simulator.node import Ports
from penstock.verify.recorder import OpenOperation
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.simulation.one_server.world_state import (
    FLEETING,
    SEGMENT_BYTES,
    STRICT,
    Book,
    Broken,
    KnownTopic,
    WorldState,
)

WAIT_MS = 400

Work: TypeAlias = Callable[[Admin, Producer], Awaitable[None]]


def label(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class Sender:
    """A producer that continues until enough of its records are acknowledged."""

    def __init__(
        self, state: WorldState, book: Book, name: str, topic: str, partitions: int, acks: int, goal: int
    ) -> None:
        self.state = state
        self.book = book
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.acks = acks
        self.goal = goal
        random = self.random = state.world.streams.stream("client", name)
        self.linger_ms = random.choice((0, 0, 5, 30))
        self.batch_bytes = random.choice((200, 1_000, 16_384))
        self.delivery_timeout_ms = random.choice((1_500, 60_000, 60_000))
        self.open_max = random.choice((1, 4, 12))
        self.pause_s = 5.5 * 8.75 / goal  # a turn sends 8.75 records on average
        self.acknowledged = 0
        self.numbers = 0
        self.lives = 0

    @property
    def is_done(self) -> bool:
        return (self.numbers if self.acks == 0 else self.acknowledged) >= self.goal

    async def run(self, ports: Ports) -> None:
        self.lives += 1
        if self.lives > 1:
            self.book.recorder.invoke(self.name, "crash").ok()
        cluster = self.state.cluster(ports)
        producer = Producer(
            cluster,
            acks="all" if self.acks < 0 else self.acks,
            codec=self.state.script.codec,
            linger_ms=self.linger_ms,
            batch_bytes=self.batch_bytes,
            delivery_timeout_ms=self.delivery_timeout_ms,
            creates_topics=False,
        )
        settling: dict[asyncio.Task[None], None] = {}
        while not self.is_done:
            for _ in range(self.random.choice((1, 1, 2, 6))):
                if len(settling) >= self.open_max:
                    await asyncio.wait(list(settling), return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(await self.send(producer))
                settling[task] = None
                task.add_done_callback(settling.pop)
            if self.state.is_calm:
                await asyncio.wait(list(settling), return_when=asyncio.FIRST_COMPLETED) if settling else None
            else:
                await asyncio.sleep(self.random.expovariate(1.0) * self.pause_s)
        if settling:
            await asyncio.wait(list(settling))
        await producer.close()
        await cluster.close()
        self.state.tell(self.name, f"is through: {self.acknowledged} of {self.numbers} records acknowledged")
        self.state.finish(self.name)

    async def send(self, producer: Producer) -> Coroutine[None, None, None]:
        """Passes a few records to the producer; returns the coroutine that awaits them."""
        random = self.random
        partition = random.randrange(self.partitions)
        values = []
        for _ in range(random.randint(1, 6)):
            self.numbers += 1
            values.append(f"{self.name}.{self.numbers}." + "x" * random.choice((0, 5, 60)))
        place = label(self.topic, partition)
        operation = self.book.recorder.invoke(self.name, "send", [[place, None, value] for value in values])
        outcomes: list[asyncio.Future[Delivery] | ClientError] = []
        for value in values:
            try:
                outcomes.append(await producer.send(self.topic, value.encode(), partition=partition))
            except ClientError as error:
                outcomes.append(error)
        return self.settle(operation, place, values, outcomes)

    async def settle(
        self,
        operation: OpenOperation,
        place: str,
        values: Sequence[str],
        outcomes: "Sequence[asyncio.Future[Delivery] | ClientError]",
    ) -> None:
        rows: list[list[object]] = []
        errors: list[ClientError] = []
        for value, outcome in zip(values, outcomes, strict=True):
            offset: int | None = None
            try:
                if isinstance(outcome, ClientError):
                    raise outcome
                delivery = await outcome
                if self.acks != 0:
                    self.acknowledged += 1
                    self.book.acknowledged += 1
                    offset = delivery.offset if delivery.offset >= 0 else None
            except ClientError as error:
                errors.append(error)
            rows.append([place, offset, value])
        if len(errors) < len(rows):
            operation.ok(rows)
            self.state.hear(self.name)
        elif all(isinstance(error, DeliveryTimedOut) and error.is_unsent for error in errors):
            operation.fail(str(errors[0]))
        else:
            operation.info(str(errors[0]))
        if errors:
            self.state.tell(self.name, f"does not know of {len(errors)} records in {place}: {errors[0]}")


class Follower:
    """Reads assigned partitions from their start, and follows them to the end."""

    def __init__(self, state: WorldState, book: Book, name: str, topic: str, partitions: int) -> None:
        self.state = state
        self.book = book
        self.name = name
        self.partitions = [TopicPartition(topic, index) for index in range(partitions)]
        random = self.random = state.world.streams.stream("client", name)
        partition_bytes_max = random.choice((300, 4_000, 1 << 20))
        self.settings = FetchSettings(
            isolation=random.choice(list(Isolation)),
            wait_ms_max=random.choice((50, WAIT_MS)),
            bytes_min=min(random.choice((1, 1, 500)), partition_bytes_max),  # else every fetch waits in vain
            partition_bytes_max=partition_bytes_max,
        )
        self.max_records = random.choice((3, 500))
        self.lives = 0
        self.records = 0

    async def run(self, ports: Ports) -> None:
        cluster = self.state.cluster(ports)
        while not await self.follow(cluster):
            await asyncio.sleep(0.1)
        await cluster.close()
        self.state.tell(self.name, f"is through: {self.records} records read in {self.lives} lives")
        self.state.finish(self.name)

    async def follow(self, cluster: Cluster) -> bool:
        """Whether it reached the end."""
        recorder = self.book.recorder
        self.lives += 1
        if self.lives > 1:
            recorder.invoke(self.name, "crash").ok()
        consumer = Consumer(cluster, self.settings, out_of_range="earliest")
        operation: OpenOperation | None = None
        try:
            await consumer.assign(dict.fromkeys(self.partitions, "earliest"))
            while not self.is_at_end(consumer):
                operation = recorder.invoke(self.name, "poll")
                found = await consumer.fetch_records(self.max_records, WAIT_MS)
                rows = [] if found is None else _rows(found.partition, found.records)
                self.records += len(rows)
                operation.ok(rows)
                operation = None
        except ClientError as error:
            self.state.tell(self.name, f"begins anew: {error}")
            if operation is not None:
                operation.info(str(error))
            return False
        finally:
            await consumer.close()
        return True

    def is_at_end(self, consumer: Consumer) -> bool:
        ends = self.state.ends
        return ends is not None and all(consumer.position(each) >= ends[label(*each)] for each in self.partitions)


class SessionReader:
    """Reads with an incremental fetch session (KIP-227), which the client library does not use by itself."""

    def __init__(self, state: WorldState, book: Book, name: str, topic: str, partitions: int) -> None:
        self.state = state
        self.book = book
        self.name = name
        self.topic = topic
        self.random = state.world.streams.stream("client", name)
        self.bytes_max = self.random.choice((300, 4_000, 1 << 20))
        self.positions = dict.fromkeys(range(partitions), 0)
        self.session_id = 0
        self.session_epoch = 0
        self.told: dict[int, int] = {}
        """The offsets that the node knows from this session."""
        self.lives = 0

    async def run(self, ports: Ports) -> None:
        self.lives += 1
        if self.lives > 1:
            self.book.recorder.invoke(self.name, "crash").ok()
        self.positions = dict.fromkeys(self.positions, 0)
        self.leave_session()
        cluster = self.state.cluster(ports)
        while not self.is_at_end():
            try:
                await self.fetch(cluster)
            except ClientError as error:
                if not isinstance(error, Unreachable):
                    self.state.tell(self.name, f"leaves its session: {error}")
                self.leave_session()
                cluster.distrust(self.topic)
                await asyncio.sleep(0.1)
        await cluster.close()
        self.state.tell(self.name, "is through")
        self.state.finish(self.name)

    def is_at_end(self) -> bool:
        ends = self.state.ends
        return ends is not None and all(at >= ends[label(self.topic, each)] for each, at in self.positions.items())

    def leave_session(self) -> None:
        self.session_id = self.session_epoch = 0
        self.told = {}

    async def fetch(self, cluster: Cluster) -> None:
        known = await cluster.topic(self.topic)
        leader = cluster.leader(TopicPartition(self.topic, 0))
        if leader is None:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
        connection = await cluster.connection(leader, "session")
        changed = {each: at for each, at in self.positions.items() if self.told.get(each) != at}
        forgotten: list[int] = []
        if self.session_id and self.told and self.random.random() < 0.02:
            forgotten = [self.random.choice(list(self.told))]
            changed.pop(forgotten[0], None)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            isolation_level=Isolation.READ_COMMITTED,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[
                FetchTopic(
                    topic=self.topic,
                    topic_id=known.topic_id,
                    partitions=[
                        FetchPartition(partition=each, fetch_offset=at, partition_max_bytes=self.bytes_max)
                        for each, at in changed.items()
                    ],
                )
            ],
            forgotten_topics_data=[ForgottenTopic(topic=self.topic, topic_id=known.topic_id, partitions=forgotten)]
            if forgotten
            else (),
        )
        poll = self.book.recorder.invoke(self.name, "poll")
        watermarks = self.book.recorder.invoke(self.name, "high_watermark")
        try:
            response = await connection.ask(request, FetchResponse, timeout_ms=WAIT_MS + cluster.request_timeout_ms)
            if response.error_code is not ErrorCode.NONE:
                raise Refused(response.error_code)
        except ClientError as error:
            poll.ok([])  # it keeps its positions: nothing was read, and it requests the same again
            watermarks.info(str(error))
            raise
        self.session_id = response.session_id
        self.session_epoch = self.session_epoch + 1 if self.session_id else 0
        self.told |= changed
        for each in forgotten:
            del self.told[each]
        self.take(response, poll, watermarks)

    def take(self, response: FetchResponse, poll: OpenOperation, watermarks: OpenOperation) -> None:
        rows: list[list[object]] = []
        seen: list[list[object]] = []
        trouble: Refused | None = None
        for topic in response.responses:
            for part in topic.partitions:
                place = TopicPartition(self.topic, part.partition_index)
                offset = self.positions[place.partition]
                if part.error_code is ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset > offset:
                    self.positions[place.partition] = part.log_start_offset
                    continue
                if part.error_code is not ErrorCode.NONE:
                    trouble = Refused(part.error_code, None, str(place))
                    continue
                seen.append([label(*place), part.high_watermark, part.last_stable_offset])
                batches = whole_batches(place, offset, part.records or b"")
                fetched = Fetched(place, offset, batches, (), part.high_watermark, part.last_stable_offset, 0)
                rows += _rows(place, fetched.records())
                self.positions[place.partition] = fetched.next_offset
        poll.ok(rows)
        watermarks.ok(seen)
        if trouble is not None:
            raise trouble


def _rows(partition: TopicPartition, records: Iterable[Record]) -> list[list[object]]:
    return rows_of(label(*partition), records)


def rows_of(place: str, records: Iterable[Record]) -> list[list[object]]:
    """Records in the form of a history."""
    return [[place, record.offset, (record.value or b"").decode()] for record in records]


async def check_topics(state: WorldState, admin: Admin) -> None:
    """Checks that exactly the expected topics exist, with their partitions and settings."""
    listed = await admin.list_topics()
    found = {topic.name: len(topic.partitions) for topic in listed if topic.name not in state.unsure}
    wanted = {name: topic.partitions for name, topic in state.topics.items()}
    if found != wanted:
        raise Broken(f"topics and partitions are {found}, but should be {wanted}")
    for name, topic in state.topics.items():
        configs = await admin.describe_configs(ConfigKind.TOPIC, name, names=list(topic.configs))
        values = {key: entry.value for key, entry in configs.items()}
        if values != topic.configs:
            raise Broken(f"settings of {name} are {values}, but should be {topic.configs}")


class Gardener:
    """Creates, fills, grows and deletes a topic repeatedly, changes settings, deletes records, lists offsets.

    A request that was sent twice may be carried out twice, the second time after a later request: a late deletion also
    deletes the next topic of that name. So a name with a repeated request is not used again and not checked at the end.
    """

    def __init__(self, state: WorldState, name: str) -> None:
        self.state = state
        self.name = name
        self.random: Random = state.world.streams.stream("client", name)
        self.topic = f"{FLEETING}-0"
        self.names = 1
        self.incarnations = 0
        self.numbers = 0

    async def run(self, ports: Ports) -> None:
        cluster = self.cluster = self.state.cluster(ports)
        admin = Admin(cluster)
        producer = Producer(cluster, creates_topics=False, delivery_timeout_ms=60_000)
        while not self.state.is_calm:
            if self.random.random() < 0.5:
                await check_topics(self.state, admin)
            known = self.state.topics.get(self.topic)
            works: list[Work] = [self.ask_offsets, self.delete_records, self.change_settings]
            works += [self.make] if known is None else [self.grow, self.fill, self.fill, self.remove]
            await self.random.choice(works)(admin, producer)
            await asyncio.sleep(self.random.expovariate(4.0))
        await producer.close()
        await cluster.close()
        self.state.tell(self.name, "is through")
        self.state.finish(self.name)

    async def is_sure(self, work: Awaitable[object], done: ErrorCode) -> bool:
        """Whether the request was sent once and carried out once. `done` may be the response to a second one."""
        before = self.cluster.repetitions
        try:
            await work
        except Refused as refused:
            if refused.code is not done or self.cluster.repetitions == before:
                raise
        return self.cluster.repetitions == before

    def take_another_name(self) -> None:
        self.state.topics.pop(self.topic, None)
        self.state.unsure[self.topic] = None
        self.state.tell(self.name, f"is not sure of {self.topic}, and leaves it alone from now on")
        self.topic = f"{FLEETING}-{self.names}"
        self.names += 1

    async def make(self, admin: Admin, _: Producer) -> None:
        configs = {SEGMENT_BYTES: str(self.random.choice((500, 5_000)))}
        count = self.random.randint(1, 3)
        work = admin.create_topic(self.topic, count, configs=configs)
        if not await self.is_sure(work, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.take_another_name()
            return
        self.incarnations += 1
        self.state.topics[self.topic] = KnownTopic(count, configs)
        self.state.tell(self.name, f"made {self.topic} ({self.incarnations}) with {count} partitions")

    async def grow(self, admin: Admin, _: Producer) -> None:
        known = self.state.topics[self.topic]
        work = admin.add_partitions(self.topic, known.partitions + 1)
        if not await self.is_sure(work, ErrorCode.INVALID_PARTITIONS):
            self.take_another_name()
            return
        known.partitions += 1
        self.state.tell(self.name, f"grew {self.topic} to {known.partitions} partitions")

    async def remove(self, admin: Admin, _: Producer) -> None:
        if not await self.is_sure(admin.delete_topic(self.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.take_another_name()
            return
        del self.state.topics[self.topic]
        self.state.tell(self.name, f"deleted {self.topic} ({self.incarnations})")

    async def change_settings(self, admin: Admin, _: Producer) -> None:
        known = self.state.topics[STRICT].configs
        configs = {SEGMENT_BYTES: str(self.random.choice((600, 1_500, 9_000)))}
        is_sure = await self.is_sure(admin.alter_configs(ConfigKind.TOPIC, STRICT, configs), ErrorCode.NONE)
        if SEGMENT_BYTES in known and is_sure:
            known |= configs
        else:
            known.pop(SEGMENT_BYTES, None)
        self.state.tell(self.name, f"set {configs} for {STRICT}")

    async def fill(self, admin: Admin, producer: Producer) -> None:
        """Publishes a few records, and reads the whole topic."""
        known = self.state.topics[self.topic]
        book = self.state.strict
        for _ in range(self.random.randint(1, 4)):
            partition = self.random.randrange(known.partitions)
            self.numbers += 1
            place, value = self.place(partition), f"{self.name}.{self.numbers}"
            operation = book.recorder.invoke(self.name, "send", [[place, None, value]])
            try:
                delivery = await producer.publish(self.topic, value.encode(), partition=partition)
            except DeliveryTimedOut as error:
                operation.info(str(error))
                continue
            operation.ok([[place, delivery.offset, value]])
            book.acknowledged += 1
        consumer = Consumer(admin.cluster, FetchSettings(wait_ms_max=100))
        try:
            await consumer.assign_topic(self.topic, "earliest", until_end=True)
            places = [[self.place(each.partition), None] for each in consumer.assignment]
            book.recorder.invoke(self.name, "assign", places).ok(places)
            while (found := await consumer.fetch_records()) is not None:
                rows = rows_of(self.place(found.partition.partition), found.records)
                book.recorder.invoke(self.name, "poll").ok(rows)
        finally:
            await consumer.close()

    def place(self, partition: int) -> str:
        return label(f"{self.topic}.{self.incarnations}", partition)

    async def ask_offsets(self, admin: Admin, _: Producer) -> None:
        for moment, word in ((Moment.EARLIEST, "earliest"), (Moment.LATEST, "latest")):
            places = [label(STRICT, each) for each in range(self.state.topics[STRICT].partitions)]
            operation = self.state.strict.recorder.invoke(
                self.name, "list_offsets", [[place, word] for place in places]
            )
            found = await admin.offsets(STRICT, moment)
            operation.ok([[label(STRICT, each), word, at.offset] for each, at in found.items()])

    async def delete_records(self, admin: Admin, _: Producer) -> None:
        partition = self.random.randrange(self.state.topics[STRICT].partitions)
        start = (await admin.offsets(STRICT, Moment.EARLIEST, partitions=[partition]))[partition].offset
        end = (await admin.offsets(STRICT, Moment.LATEST, partitions=[partition]))[partition].offset
        before = start + int((end - start) * self.random.uniform(0.0, 0.4))
        place = label(STRICT, partition)
        self.state.cut_asked[place] = max(before, self.state.cut_asked.get(place, 0))
        low = (await admin.delete_records(STRICT, {partition: before}))[partition]
        self.state.cut_done[place] = max(low, self.state.cut_done.get(place, 0))
        self.state.tell(self.name, f"deleted {place} before {before}; it begins at {low}")
