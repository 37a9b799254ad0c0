"""Our client against Apache Kafka: administration, every way to produce, every place to start reading."""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from harness import maven
from harness.kafka.kafka_node import PROJECT, KafkaNode
from penstock.client.admin.admin import NewTopic
from penstock.client.admin.configs import Change, ConfigKind, ConfigSource
from penstock.client.client import Client
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import At
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import Refused
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation, Moment
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.producer import Producer
from penstock.model.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from tests.compatibility.cutting import cutting_ports

pytestmark = pytest.mark.peers

T = TypeVar("T")
Acks = int | Literal["all"]
PLACEMENT = Path(__file__).parent / "placement" / "Placement.java"


def run(kafka: KafkaNode, story: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with asyncio.timeout(120), Client(kafka.bootstrap, **options) as client:
            return await story(client)

    return asyncio.run(main())


async def values(client: Client, topic: str, **options: Any) -> list[bytes | None]:
    return [message.value async for message in client.consume(topic, until_end=True, **options)]


async def described_until_gone(client: Client, topic: str) -> None:
    """Raises the broker's error once it has learnt of the deletion, a moment after the controller."""
    while True:
        await client.admin.describe_topic(topic)
        await asyncio.sleep(0.05)


def peer_reads(kafka: KafkaNode, topic: str, count: int) -> list[Any]:
    """Records that librdkafka reads from the start, until there are `count`."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": f"reader-of-{topic}", "enable.auto.commit": False}
    )
    found: list[Any] = []
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


# --- administration


def test_topics_come_change_and_go(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        admin = client.admin
        made = await admin.create_topic("client-topics", 3, 1, {"retention.ms": "123456", "cleanup.policy": "delete"})
        assert (made.partitions, made.replication_factor) == (3, 1)
        with pytest.raises(Refused, match="topic client-topics: TOPIC_ALREADY_EXISTS"):
            await admin.create_topic("client-topics")
        with pytest.raises(Refused) as refused:
            await admin.create_topic("client-topics-2", replication_factor=3)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        await admin.create_topic("client-dry", validate_only=True)

        topic = await admin.describe_topic("client-topics")
        assert topic.topic_id == made.topic_id
        assert [(each.index, each.leader, each.isr) for each in topic.partitions] == [(n, 1, (1,)) for n in range(3)]
        names = [each.name for each in await admin.list_topics()]
        assert "client-topics" in names
        assert "client-dry" not in names

        await admin.add_partitions("client-topics", 5)
        assert len((await admin.describe_topic("client-topics")).partitions) == 5
        with pytest.raises(Refused, match="INVALID_PARTITIONS"):
            await admin.add_partitions("client-topics", 4)

        await admin.delete_topic("client-topics")
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.delete_topic("client-topics")
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION: the broker knows no such topic"):
            await described_until_gone(client, "client-topics")

    run(kafka, story)


def test_many_topics_at_once_tell_which_of_them_failed(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        wanted = [NewTopic("client-many", assignments=[[1], [1]]), NewTopic("client many!")]
        made = await client.admin.create_topics(wanted)
        refused = made["client many!"]
        assert isinstance(refused, Refused)
        assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        found = await client.admin.describe_topics(["client-many", "client-none"])
        assert isinstance(found["client-none"], Refused)
        assert not isinstance(found["client-many"], Refused)
        assert len(found["client-many"].partitions) == 2
        gone = await client.admin.delete_topics(["client-many", "client-none"])
        assert gone["client-many"] is None
        assert isinstance(gone["client-none"], Refused)

    run(kafka, story)


async def _shown(client: Client, topic: str, names: list[str]) -> dict[str, str | None]:
    found = await client.admin.describe_configs(ConfigKind.TOPIC, topic, names=names)
    return {name: entry.value for name, entry in found.items()}


def test_settings_are_read_and_changed_one_by_one(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        admin, name = client.admin, "client-settings"
        await admin.create_topic(name, configs={"retention.ms": "1000", "cleanup.policy": "delete"})
        found = await admin.describe_configs(ConfigKind.TOPIC, name)
        assert (found["retention.ms"].value, found["retention.ms"].source) == ("1000", ConfigSource.TOPIC)
        assert found["segment.bytes"].is_default

        changes: dict[str, str | tuple[Change, str | None] | None]
        changes = {"retention.ms": None, "segment.ms": "5000", "cleanup.policy": (Change.APPEND, "compact")}
        await admin.alter_configs(ConfigKind.TOPIC, name, changes, validate_only=True)
        assert (await admin.describe_configs(ConfigKind.TOPIC, name))["retention.ms"].value == "1000"
        await admin.alter_configs(ConfigKind.TOPIC, name, changes)
        wanted = {"cleanup.policy": "delete,compact", "retention.ms": "604800000", "segment.ms": "5000"}
        while (shown := await _shown(client, name, list(wanted)))["segment.ms"] != "5000":
            await asyncio.sleep(0.02)  # Kafka answers a moment before it shows the change
        assert shown == wanted
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            await admin.alter_configs(ConfigKind.TOPIC, name, {"no.such.setting": "1"})
        broker = await admin.describe_configs(ConfigKind.BROKER, "1")
        assert broker["node.id"].value == "1"
        assert broker["node.id"].is_read_only

    run(kafka, story)


def test_the_cluster_and_its_disks_are_described(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        await client.create_topic("client-disks")
        await client.publish("client-disks", b"x" * 1000)
        cluster = await client.admin.describe_cluster()
        assert [str(broker.address) for broker in cluster.brokers] == [kafka.bootstrap]
        assert cluster.cluster_id
        ((log_dir,),) = (await client.admin.log_dirs()).values()
        assert log_dir.path == str(kafka.data)
        assert log_dir.replicas[TopicPartition("client-disks", 0)] > 1000
        assert log_dir.total_bytes > log_dir.usable_bytes > 0
        ((some,),) = (await client.admin.log_dirs(partitions=[TopicPartition("client-disks", 0)])).values()
        assert list(some.replicas) == [TopicPartition("client-disks", 0)]

    run(kafka, story)


def test_records_are_deleted_up_to_an_offset(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        await client.create_topic("client-purge", 2)
        for number in range(6):
            await client.publish("client-purge", str(number), partition=0)
        assert await client.admin.delete_records("client-purge", {0: 4, 1: -1}) == {0: 4, 1: 0}
        earliest = await client.admin.offsets("client-purge", Moment.EARLIEST)
        assert {partition: at.offset for partition, at in earliest.items()} == {0: 4, 1: 0}
        assert await values(client, "client-purge") == [b"4", b"5"]
        with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
            await client.admin.delete_records("client-purge", {0: 7})
        with pytest.raises(Refused, match=r"OFFSET_OUT_OF_RANGE: .*; the log reaches from 4 to 6"):
            await values(client, "client-purge", start=2, partitions=[0])

    run(kafka, story)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_and_described(kafka: KafkaNode, protocol: str) -> None:
    name = f"client-group-{protocol}"

    async def prepare(client: Client) -> None:
        await client.create_topic(name, 2)
        for number in range(4):
            await client.publish(name, str(number), partition=number % 2)

    run(kafka, prepare)
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": name,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    member = confluent_kafka.Consumer(settings)
    try:
        member.subscribe([name])
        deadline, seen = time.monotonic() + 30, 0
        while seen < 4 and time.monotonic() < deadline:
            message = member.poll(0.5)
            seen += message is not None and message.error() is None
        member.commit(asynchronous=False)

        async def look(client: Client) -> None:
            (listed,) = [group for group in await client.admin.list_groups() if group.group_id == name]
            assert (listed.state, listed.type.lower(), listed.coordinator) == ("Stable", protocol, 1)
            group = await client.admin.describe_group(name)
            assert (group.type, group.state) == (protocol, "Stable")
            (found,) = group.members
            assert sorted(found.assignment) == [(name, 0), (name, 1)]
            assert await client.admin.group_offsets(name) == {(name, 0): 2, (name, 1): 2}
            with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
                await client.admin.delete_group(name)
            with pytest.raises(Refused, match="GROUP_ID_NOT_FOUND"):
                await client.admin.describe_group("client-no-such-group")

        run(kafka, look)
    finally:
        member.close()

    async def remove(client: Client) -> None:
        await client.admin.delete_group(name)
        assert name not in [group.group_id for group in await client.admin.list_groups()]

    run(kafka, remove)


# --- producing


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", list(Codec))
def test_all_codecs_and_acks(kafka: KafkaNode, codec: Codec, acks: Acks) -> None:
    topic = f"client-produce-{codec.name}-{acks}"
    text = b"penstock " * 20

    async def story(client: Client) -> None:
        await client.create_topic(topic)
        producer = client.producer(acks=acks, codec=codec, linger_ms=5)
        sent = [
            await producer.send(topic, text + b"%d" % number, key=b"%d" % number, headers={"n": b"%d" % number})
            for number in range(200)
        ]
        await producer.flush(30_000)
        offsets = [each.result().offset for each in sent]
        assert offsets == ([-1] * 200 if acks == 0 else list(range(200)))
        consumer = client.consumer()
        await consumer.assign({TopicPartition(topic, 0): 0})
        count = 0
        while count < 200:
            fetched = await consumer.fetch_batches(10_000)
            assert fetched is not None
            assert {batch.codec for batch in fetched.batches} == {codec}
            count += sum(batch.count for batch in fetched.batches)

    run(kafka, story)
    found = peer_reads(kafka, topic, 200)
    assert [message.value() for message in found] == [text + b"%d" % number for number in range(200)]
    assert [message.key() for message in found] == [b"%d" % number for number in range(200)]
    assert found[7].headers() == [("n", b"7")]


def test_timestamps_are_ours_or_the_broker_s(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        await client.create_topic("client-times-own")
        await client.create_topic("client-times-log", configs={"message.timestamp.type": "LogAppendTime"})
        producer = client.producer()
        past_ms = 1_600_000_000_000
        own = await producer.publish("client-times-own", b"", timestamp_ms=past_ms)
        assert own.timestamp_ms == past_ms
        stamped = await producer.publish("client-times-log", b"", timestamp_ms=past_ms)
        assert stamped.timestamp_ms > past_ms
        for topic, delivery in (("client-times-own", own), ("client-times-log", stamped)):
            (message,) = [each async for each in client.consume(topic, until_end=True)]
            assert message.timestamp_ms == delivery.timestamp_ms

    run(kafka, story)


def test_what_a_topic_does_not_take_is_told(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        await client.create_topic("client-small", configs={"max.message.bytes": "1000"})
        await client.create_topic("client-compact", configs={"cleanup.policy": "compact"})
        await client.publish("client-small", b"x")
        with pytest.raises(Refused, match=r"client-small\[0\]: MESSAGE_TOO_LARGE"):
            await client.publish("client-small", b"x" * 2000)
        assert await client.publish("client-small", b"y") == (0, 1)
        with pytest.raises(Refused, match=r"client-compact\[0\]: INVALID_RECORD"):
            await client.publish("client-compact", b"x")
        await client.publish("client-compact", None, "k")
        assert await values(client, "client-small") == [b"x", b"y"]

    run(kafka, story)


@pytest.mark.parametrize("is_late", [False, True])
def test_connections_that_are_cut_cost_and_repeat_nothing(kafka: KafkaNode, is_late: bool) -> None:
    topic, count = f"client-cut-{is_late}", 6000

    async def main() -> list[bytes | None]:
        ports, network = cutting_ports()
        cluster = Cluster(kafka.bootstrap, ports=ports)
        async with Client(kafka.bootstrap) as client:
            await client.create_topic(topic, 2)
            producer = Producer(cluster, batch_bytes=500)
            sent = []
            for number in range(count):
                sent.append(await producer.send(topic, b"%d" % number, partition=number % 2))
                if number % 300 == 299:
                    await network.until_connected()
                    network.cut(is_late=is_late)
                    await asyncio.sleep(0.02)
            deliveries = await asyncio.gather(*sent)
            await producer.close()
            await cluster.close()
            ports.close()
            assert network.cuts >= 5
            assert [each.offset for each in deliveries] == [number // 2 for number in range(count)]
            return await values(client, topic)

    found = asyncio.run(main())
    assert sorted(int(value or b"-1") for value in found) == list(range(count))
    for parity in (0, 1):
        assert [each for each in found if int(each or b"") % 2 == parity] == [
            b"%d" % number for number in range(parity, count, 2)
        ]


def test_keys_go_where_java_sends_them(kafka: KafkaNode) -> None:
    topic, partitions = "client-placement", 13
    keys = [b"%d" % number for number in range(300)]
    keys += [bytes([number]) * size for number in (0, 127, 128, 255) for size in range(12)]

    async def story(client: Client) -> None:
        await client.create_topic(topic, partitions)
        java = subprocess.run(
            ["java", "-cp", f"{maven.build(PROJECT) / 'lib'}/*", str(PLACEMENT), kafka.bootstrap, topic],
            input="\n".join(key.hex() for key in keys),
            capture_output=True,
            text=True,
            check=True,
        )
        theirs = [int(line) for line in java.stdout.split()]
        assert theirs == [partition_for_key(key, partitions) for key in keys]
        assert [(await client.publish(topic, b"", key)).partition for key in keys] == theirs
        assert len(set(theirs)) == partitions

    run(kafka, story)


# --- consuming


def test_reading_begins_anywhere(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        topic, base_ms = "client-starts", 1_700_000_000_000
        await client.create_topic(topic)
        producer = client.producer(batch_bytes=300)
        sent = [await producer.send(topic, b"%d" % n, timestamp_ms=base_ms + n * 10) for n in range(100)]
        await asyncio.gather(*sent)

        async def first(start: Any) -> bytes | None:
            found = await values(client, topic, start=start)
            assert found == [b"%d" % number for number in range(100 - len(found), 100)]
            return found[0] if found else None

        assert await first("earliest") == b"0"
        assert await first("latest") is None
        assert await first(42) == b"42"
        assert await first(At(base_ms + 500)) == b"50"
        assert await first(At(base_ms + 501)) == b"51"
        assert await first(At(base_ms + 10_000)) is None
        newest = await client.admin.offsets(topic, Moment.MAX_TIMESTAMP)
        assert (newest[0].offset, newest[0].timestamp_ms) == (99, base_ms + 990)

    run(kafka, story)


def test_a_reader_at_the_end_hears_of_new_records_at_once(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        await client.create_topic("client-tail")
        consumer = client.consumer(FetchSettings(wait_ms_max=5000))
        await consumer.assign_topic("client-tail", "latest")
        assert await consumer.fetch_records(timeout_ms=300) is None
        loop = asyncio.get_running_loop()
        before = loop.time()
        await client.publish("client-tail", b"news")
        found = await consumer.fetch_records(timeout_ms=10_000)
        assert found is not None
        assert [record.value for record in found.records] == [b"news"]
        assert loop.time() - before < 3, "the broker's wait was not cut short"

    run(kafka, story)


def test_who_reads_committed_records_sees_what_librdkafka_sees(kafka: KafkaNode) -> None:
    topic = "client-committed"
    run(kafka, lambda client: client.create_topic(topic))
    writers = []
    for name in ("one", "two"):
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{name}", "linger.ms": 0}
        writer = confluent_kafka.Producer(settings)
        writer.init_transactions(30)
        writers.append(writer)
    committed, number = [], 0
    for rounds, (first_commits, second_commits) in enumerate([(1, 0), (0, 1), (0, 0), (1, 1), (0, 1)]):
        for writer in writers:
            writer.begin_transaction()
        for writer, commits in ((writers[0], first_commits), (writers[1], second_commits)) * 3:
            writer.produce(topic, b"%d" % number, partition=0)
            writer.flush(10)
            if commits:
                committed.append(b"%d" % number)
            number += 1
        order = [(writers[0], first_commits), (writers[1], second_commits)]
        for writer, commits in order if rounds % 2 else reversed(order):
            if commits:
                writer.commit_transaction(30)
            else:
                writer.abort_transaction(30)
    writers[0].begin_transaction()
    writers[0].produce(topic, b"open", partition=0)
    writers[0].flush(10)

    async def story(client: Client) -> None:
        everything = await values(client, topic)
        assert everything == [*(b"%d" % each for each in range(number)), b"open"]
        found = await values(client, topic, isolation="read_committed")
        assert found == committed
        stable = await client.admin.offsets(topic, Moment.LATEST, isolation=Isolation.READ_COMMITTED)
        latest = await client.admin.offsets(topic, Moment.LATEST)
        assert stable[0].offset == latest[0].offset - 1
        # From the middle of transactions, too: the start of a fetch must not change the result.
        for start in range(latest[0].offset):
            consumer = client.consumer(FetchSettings(isolation=Isolation.READ_COMMITTED, partition_bytes_max=200))
            await consumer.assign({TopicPartition(topic, 0): start}, until_end=True)
            seen = [(message.offset, message.value) async for message in consumer]
            assert [value for _, value in seen] == committed[len(committed) - len(seen) :]
            assert all(offset >= start for offset, _ in seen)
            await consumer.close()

    try:
        run(kafka, story)
        theirs = [message.value() for message in peer_reads(kafka, topic, len(committed))]
        assert theirs == committed
    finally:
        writers[0].abort_transaction(30)


def test_raw_batches_are_what_is_stored(kafka: KafkaNode) -> None:
    async def story(client: Client) -> None:
        topic = "client-raw"
        await client.create_topic(topic)
        for codec in Codec:
            producer = client.producer(codec=codec)
            await asyncio.gather(*[await producer.send(topic, b"%d" % n * 30) for n in range(10)])
        consumer = client.consumer()
        await consumer.assign_topic(topic, "earliest", until_end=True)
        batches: list[BatchView] = []
        while (fetched := await consumer.fetch_batches()) is not None:
            batches += fetched.batches
        assert [(batch.base_offset, batch.count, batch.codec) for batch in batches] == [
            (10 * number, 10, codec) for number, codec in enumerate(Codec)
        ]
        assert all(batch.is_intact for batch in batches)

    run(kafka, story)


# --- the blocking client


def test_the_blocking_client_does_the_same(kafka: KafkaNode) -> None:
    with Client.blocking(kafka.bootstrap) as client:
        client.create_topic("client-blocking", partitions=2)
        assert "client-blocking" in [topic.name for topic in client.topics()]
        for number in range(10):
            client.publish("client-blocking", str(number), partition=0, headers={"h": "v"})
        found = list(client.consume("client-blocking", until_end=True, max_batch=3))
        assert [message.value for message in found] == [b"%d" % number for number in range(10)]
        assert found[0].headers == (("h", b"v"),)
        for message in client.consume("client-blocking", start="latest", idle_ms_max=200):
            raise AssertionError(message)
        for message in client.consume("client-blocking"):
            assert message.offset == 0
            break
        groups = client.run(client.admin.describe_cluster())
        assert len(groups.brokers) == 1
        client.delete_topic("client-blocking")
    gone = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10)
    assert "client-blocking" not in gone.topics
