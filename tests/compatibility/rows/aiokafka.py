"""aiokafka, with an event loop per call; a group member has an event loop of its own, in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, for_code

from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.rows.row import (
    AUTO_COMMIT_MS,
    CONSUMER,
    HEARTBEAT_MS,
    POLL_S,
    GroupShown,
    Joining,
    Member,
    Message,
    Operation,
    Place,
    Producing,
    Row,
    TooLarge,
    TopicSeen,
    lacking,
)
from tests.compatibility.seen import seen_in_python

TIMEOUT_S = 30.0
# The source of a setting in a DescribeConfigs response.
TOPIC_SOURCE = 1

T = TypeVar("T")


class AiokafkaMember(Member):
    """A member whose asynchronous commits are tasks."""

    def __init__(self, how: Joining) -> None:
        self._topic = how.topic
        self._commits: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._run(self._start(how))

    @staticmethod
    async def _start(how: Joining) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            how.topic,
            bootstrap_servers=how.bootstrap,
            group_id=how.group,
            group_instance_id=how.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=how.is_auto,
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        return consumer

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def poll(self) -> Sequence[Place]:
        return self._run(self._poll())

    async def _poll(self) -> list[Place]:
        for done in [each for each in self._commits if each.done()]:
            self._commits.remove(done)
            done.result()
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        return [(each.partition, each.offset) for batch in found.values() for each in batch]

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def commit_async(self) -> None:
        async def begin() -> None:
            self._commits.add(asyncio.ensure_future(self._consumer.commit()))

        self._run(begin())

    def seek(self, partition: int, offset: int) -> None:
        self._call(self._consumer.seek, partition, offset)

    def pause(self, partition: int) -> None:
        self._call(self._consumer.pause, partition)

    def resume(self, partition: int) -> None:
        self._call(self._consumer.resume, partition)

    def _call(self, method: Callable[..., None], partition: int, *arguments: int) -> None:
        async def call() -> None:
            method(aiokafka.TopicPartition(self._topic, partition), *arguments)

        self._run(call())

    def leave(self) -> None:
        try:
            self._run(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)
            self._loop.close()


class Aiokafka(Row):
    """Its admin client returns responses unchanged, errors included."""

    name = "aiokafka"
    pipelines = False
    member = AiokafkaMember
    lacks: ClassVar[Mapping[Operation, str]] = {
        **lacking(CONSUMER, "aiokafka has only the classic protocol"),
        **lacking(
            (Operation.RESET_GROUP, Operation.DELETE_GROUP_OFFSETS, Operation.DELETE_GROUP),
            "its admin client reads groups, it does not change them",
        ),
    }

    def version(self) -> str:
        return str(aiokafka.__version__)

    def create_topic(self, bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        async def create(admin: AIOKafkaAdminClient) -> None:
            response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(settings))])
            _check(response.to_object()["topic_errors"])

        _with_admin(bootstrap, create)

    def describe_topic(self, bootstrap: str, topic: str) -> TopicSeen:
        async def describe(admin: AIOKafkaAdminClient) -> TopicSeen:
            (described,) = await admin.describe_topics([topic])
            _check([described])
            settings = {entry["config_names"]: entry["config_value"] or "" for entry in await _entries(admin, topic)}
            return TopicSeen(len(described["partitions"]), settings)

        return _with_admin(bootstrap, describe)

    def alter_topic(self, bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
        """It supports only AlterConfigs, which replaces all settings: existing ones must be sent along."""

        async def alter(admin: AIOKafkaAdminClient) -> None:
            present = {
                entry["config_names"]: entry["config_value"]
                for entry in await _entries(admin, topic)
                if entry["config_source"] == TOPIC_SOURCE
            }
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, present | dict(settings))
            (response,) = await admin.alter_configs([resource])
            _check(response.to_object()["resources"])

        _with_admin(bootstrap, alter)

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        async def add(admin: AIOKafkaAdminClient) -> None:
            response = await admin.create_partitions({topic: NewPartitions(total)})
            _check(response.to_object()["topic_errors"])

        _with_admin(bootstrap, add)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        async def delete(admin: AIOKafkaAdminClient) -> None:
            response = await admin.delete_topics([topic])
            _check(response.to_object()["topic_error_codes"])

        _with_admin(bootstrap, delete)

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> None:
        async def delete(admin: AIOKafkaAdminClient) -> None:
            place = aiokafka.TopicPartition(topic, partition)
            await admin.delete_records({place: RecordsToDelete(before)})

        _with_admin(bootstrap, delete)

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Producing) -> None:
        async def produce() -> None:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **_producer_settings(how)) as producer:
                sent = [
                    await producer.send(
                        topic, each.value, each.key, each.partition, each.timestamp_ms, list(each.headers)
                    )
                    for each in messages
                ]
                await asyncio.gather(*sent)

        try:
            _run(produce())
        except MessageSizeTooLargeError as error:
            raise TooLarge(str(error)) from error

    def consume(self, bootstrap: str, topic: str, partition: int, offset: int, count: int) -> Sequence[Record]:
        async def consume() -> list[Record]:
            async with _consumer(bootstrap) as consumer:
                return await _read(consumer, aiokafka.TopicPartition(topic, partition), offset, count)

        return _run(consume())

    def consume_since(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int, count: int
    ) -> Sequence[Record]:
        async def consume() -> list[Record]:
            place = aiokafka.TopicPartition(topic, partition)
            async with _consumer(bootstrap) as consumer:
                found = await consumer.offsets_for_times({place: timestamp_ms})
                return await _read(consumer, place, found[place].offset, count)

        return _run(consume())

    def join(self, how: Joining) -> Member:
        return AiokafkaMember(how)

    def describe_group(self, bootstrap: str, group: str, topic: str) -> GroupShown:
        async def describe(admin: AIOKafkaAdminClient) -> GroupShown:
            listed = {name for name, *_ in await admin.list_consumer_groups()}
            (response,) = await admin.describe_consumer_groups([group])
            (described,) = response.to_object()["groups"]
            _check([described])
            offsets = await admin.list_consumer_group_offsets(group)
            committed = {place.partition: found.offset for place, found in offsets.items() if place.topic == topic}
            return GroupShown(group in listed, described["state"], len(described["members"]), committed)

        return _with_admin(bootstrap, describe)


def _run(work: Coroutine[Any, Any, T]) -> T:
    async def in_time() -> T:
        async with asyncio.timeout(TIMEOUT_S):
            return await work

    return asyncio.run(in_time())


def _with_admin(bootstrap: str, work: Callable[[AIOKafkaAdminClient], Coroutine[Any, Any, T]]) -> T:
    async def act() -> T:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    return _run(act())


async def _entries(admin: AIOKafkaAdminClient, topic: str) -> list[dict[str, Any]]:
    """The settings of a topic."""
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    (resource,) = response.to_object()["resources"]
    _check([resource])
    entries: list[dict[str, Any]] = resource["config_entries"]
    return entries


def _check(answers: Sequence[Mapping[str, Any]]) -> None:
    for answer in answers:
        if answer["error_code"]:
            error: type[KafkaError] = for_code(answer["error_code"])
            raise error(answer.get("error_message"))


def _producer_settings(how: Producing) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression_type": None if how.codec is Codec.NONE else how.codec.name.lower(),
        "acks": how.acks if how.acks == "all" else int(how.acks),
        "enable_idempotence": how.idempotent,
    }
    if how.request_bytes_max is not None:
        settings["max_request_size"] = how.request_bytes_max
    if how.batch_bytes is not None:
        settings["max_batch_size"] = how.batch_bytes
    if how.linger_ms is not None:
        settings["linger_ms"] = how.linger_ms
    return settings


def _consumer(bootstrap: str) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)


async def _read(
    consumer: aiokafka.AIOKafkaConsumer, place: aiokafka.TopicPartition, offset: int, count: int
) -> list[Record]:
    consumer.assign([place])
    consumer.seek(place, offset)
    found: list[Record] = []
    while len(found) < count:
        messages = await consumer.getmany(place, timeout_ms=100)
        found += [seen_in_python(message).record for message in messages.get(place, ())]
    return found
