"""Metadata in every version: all topics, names, ids, errors, automatic topic creation, cached responses."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.metadata.commands import DeleteTopics, NewTopic, TopicRef
from penstock.metadata.image import TOPIC, Broker, Image, Partition, Topic
from penstock.metadata.shelves import Shelves
from penstock.model.errors import ErrorCode
from penstock.server.handlers.topics.metadata_answer import (
    PARTITIONS_AT_ONCE,
    TOPIC_OPERATIONS,
    UNTOLD_OPERATIONS,
    TopicPieces,
    describe_topic,
    encode_topic,
    write_answer,
)
from penstock.server.loop.pieces import Turns
from penstock.wire.headers import response_frame
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from penstock.wire.types import ZERO_UUID
from tests.unit.server.handlers.bare_node import NONE, a_batch, only, to_produce
from tests.unit.server.handlers.cluster import LISTENERS, NODE, Cluster, clustered

VERSIONS = range(14)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION


def codes(response: MetadataResponse) -> dict[str | None, ErrorCode]:
    return {topic.name: topic.error_code for topic in response.topics}


def fixed(version: int) -> dict[str, Any]:
    """Disables automatic topic creation, in versions that have the field."""
    return {"allow_auto_topic_creation": False} if version >= 4 else {}


# --- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_brokers_and_topics(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        (made,) = await cluster.create(NewTopic("t", 2))
        response = await cluster.metadata("t", version=version, **fixed(version))
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port, broker.rack) == (NODE, "192.168.7.7", 9092, None)
        assert response.cluster_id == ("c" if version >= 2 else None)
        assert response.controller_id == (NODE if version >= 1 else -1)
        assert response.error_code is NONE
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (NONE, "t", False)
        assert topic.topic_id == (made.topic_id if version >= 10 else ZERO_UUID)
        for index, partition in enumerate(topic.partitions):
            assert partition.partition_index == index
            assert (partition.error_code, partition.leader_id) == (NONE, NODE)
            assert partition.leader_epoch == (0 if version >= 7 else -1)
            assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((NODE,), (NODE,), ())
        assert len(topic.partitions) == 2

    clustered(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_and_none(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("b", "a", "c")
        if version:
            assert [topic.name for topic in (await cluster.metadata(None, version=version)).topics] == ["a", "b", "c"]
        empty = (await cluster.metadata(version=version)).topics
        assert [topic.name for topic in empty] == ([] if version else ["a", "b", "c"])
        assert len((await cluster.metadata(version=version)).brokers) == 1

    clustered(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        asked = ("nobody", "a b", "t", "", "nobody", "__consumer_offsets")
        response = await cluster.metadata(*asked, version=version, **fixed(version))
        found = {"nobody": UNKNOWN, "a b": INVALID, "t": NONE, "": INVALID, "__consumer_offsets": UNKNOWN}
        assert codes(response) == found
        assert len(response.topics) == 5
        internal = [topic.name for topic in response.topics if topic.is_internal]
        assert internal == (["__consumer_offsets"] if version >= 1 else [])
        assert names_of(cluster) == ["t"]

    clustered(story, settings={"auto.create.topics.enable": "false"} if version < 4 else None)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        made = await cluster.create("a", "b")
        asked = [MetadataRequestTopic(topic_id=each.topic_id, name=None) for each in made]
        asked += [MetadataRequestTopic(topic_id=b"x" * 16, name=None), MetadataRequestTopic(name="b"), asked[0]]
        response = await cluster.ask_metadata(MetadataRequest(topics=asked), version)
        assert codes(response) == {"a": NONE, "b": NONE, None: ErrorCode.UNKNOWN_TOPIC_ID}
        assert len(response.topics) == 3
        assert response.topics[2].topic_id == b"x" * 16

    clustered(story)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_come_too_early(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        (made,) = await cluster.create("a")
        for asked in (MetadataRequestTopic(name=None), MetadataRequestTopic(name="a", topic_id=made.topic_id)):
            response = await cluster.ask_metadata(MetadataRequest(topics=[asked]), version)
            assert codes(response) == {asked.name or "": ErrorCode.INVALID_REQUEST}
            assert (response.brokers, response.cluster_id, response.controller_id) == ((), None, -1)

    clustered(story)


@pytest.mark.parametrize("version", range(8, 14))
def test_operations_are_told_on_request(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        asked: dict[str, Any] = {"include_topic_authorized_operations": True}
        if version <= 10:
            asked["include_cluster_authorized_operations"] = True
        response = await cluster.metadata("t", "no", version=version, **fixed(version), **asked)
        assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
        assert response.cluster_authorized_operations == (8096 if version <= 10 else UNTOLD_OPERATIONS)
        response = await cluster.metadata("t", version=version)
        assert response.topics[0].topic_authorized_operations == UNTOLD_OPERATIONS
        assert response.cluster_authorized_operations == UNTOLD_OPERATIONS

    clustered(story)


# --- automatic topic creation -----------------------------------------------------------------------------------------


def names_of(cluster: Cluster) -> list[str]:
    return sorted(cluster.controller.image.topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_is_made_and_ready(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        response = await cluster.metadata("t", "a b", version=version)
        assert codes(response) == {"t": NONE, "a b": INVALID}
        assert len(response.topics[0].partitions) == 3
        assert only(await cluster.produce(to_produce(("t", 2, a_batch())))).error_code is NONE

    clustered(story, sync_s=0.001, settings={"num.partitions": "3"})


def test_nothing_is_made_when_the_request_or_the_broker_says_no() -> None:
    async def story(cluster: Cluster) -> None:
        assert codes(await cluster.metadata("t", allow_auto_topic_creation=False)) == {"t": UNKNOWN}
        await cluster.metadata(None)
        assert names_of(cluster) == []

    async def off(cluster: Cluster) -> None:
        assert codes(await cluster.metadata("t")) == {"t": UNKNOWN}

    clustered(story)
    clustered(off, settings={"auto.create.topics.enable": "false"})


def test_many_clients_that_need_the_same_topic_get_the_same_one() -> None:
    async def story(cluster: Cluster) -> None:
        responses = await asyncio.gather(*(cluster.metadata("t") for _ in range(20)))
        assert len(dict.fromkeys(response.topics[0].topic_id for response in responses)) == 1
        assert all(codes(response) == {"t": NONE} for response in responses)

    clustered(story, sync_s=0.01)


def test_why_a_topic_cannot_be_made() -> None:
    async def refuse(cluster: Cluster) -> None:
        assert codes(await cluster.metadata("t")) == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}

    async def collide(cluster: Cluster) -> None:
        await cluster.create("a.b")
        assert codes(await cluster.metadata("a_b", "__cluster_metadata")) == {
            "a_b": INVALID,
            "__cluster_metadata": UNKNOWN,
        }

    clustered(refuse, settings={"default.replication.factor": "3"})
    clustered(collide)


def test_the_coordinators_topics_are_made_their_way() -> None:
    async def story(cluster: Cluster) -> None:
        names = ("__consumer_offsets", "__transaction_state", "__share_group_state")
        response = await cluster.metadata(*names)
        assert codes(response) == dict.fromkeys(names, NONE)
        assert [len(topic.partitions) for topic in response.topics] == [5, 50, 50]
        assert all(topic.is_internal for topic in response.topics)
        image = cluster.controller.image
        assert [image.config(TOPIC, name)["cleanup.policy"] for name in names] == ["compact", "compact", "delete"]
        assert image.config(TOPIC, "__share_group_state")["retention.ms"] == "-1"

    settings = {"offsets.topic.num.partitions": "5", "share.coordinator.state.topic.replication.factor": "1"}
    clustered(story, settings=settings)


def test_a_topic_that_is_not_ready_in_time_is_not_there_yet() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert codes(await cluster.metadata("t")) == {"t": UNKNOWN}
        assert 5 <= loop.time() - began < 6
        await asyncio.sleep(60)
        assert codes(await cluster.metadata("t")) == {"t": NONE}

    clustered(story, sync_s=3.0)


# --- cached responses -------------------------------------------------------------------------------------------------


def an_image(*topics: Topic, brokers: tuple[int, ...] = (1, 2)) -> Image:
    known = {number: Broker(number, 0, bytes(16), LISTENERS, is_fenced=number == 2) for number in brokers}
    return Image(topics=Shelves[str, Topic]().changed({topic.name: topic for topic in topics}), brokers=known)


def a_topic(name: str, partitions: int, leader: int = 1) -> Topic:
    placed = {n: Partition((1, 2, 3), (1, 3), leader, n, 0) for n in range(partitions)}
    return Topic(name, name.encode().ljust(16, b"i"), placed)


async def every(
    pieces: TopicPieces,
    topics: Sequence[Topic],
    image: Image,
    version: int,
    operations: int = UNTOLD_OPERATIONS,
    listener: str = "PLAINTEXT",
) -> list[bytes]:
    turns = Turns()
    return [await pieces.one(topic, image, listener, version, turns, operations) for topic in topics]


def one(
    pieces: TopicPieces, topic: Topic, image: Image, version: int = 9, operations: int = UNTOLD_OPERATIONS
) -> bytes:
    (piece,) = asyncio.run(every(pieces, [topic], image, version, operations))
    return piece


@pytest.mark.parametrize(
    ("version", "operations"),
    [
        *((version, UNTOLD_OPERATIONS) for version in VERSIONS),
        *((version, TOPIC_OPERATIONS) for version in range(8, 14)),
    ],
)
def test_what_is_put_together_is_what_the_codec_would_have_written(version: int, operations: int) -> None:
    topics = [
        a_topic("a", 0),
        a_topic("b", 1, leader=7),
        a_topic("ü" * 60, 300),
        a_topic("large", 2 * PARTITIONS_AT_ONCE + 100, leader=7),
        *(a_topic(f"t{n}", 2) for n in range(200)),
    ]
    image = an_image(*topics)
    rows = [describe_topic(topic, image.brokers, operations, version) for topic in topics]
    rows.append(MetadataResponseTopic(error_code=UNKNOWN, name="x" if version < 12 else None, partitions=()))
    broker = MetadataResponseBroker(node_id=1, host="h", port=9, rack="r" if version else None)
    pieces = TopicPieces()
    for count in (0, 1, 2, 127, 128, len(rows)):
        head: dict[str, Any] = {"brokers": [broker], "cluster_id": "c", "controller_id": 5}
        if 8 <= version <= 10:
            head["cluster_authorized_operations"] = 8096
        for _ in range(2):
            parts = asyncio.run(every(pieces, topics[:count], image, version, operations))
            parts += [encode_topic(row, version) for row in rows[len(topics) : count]]
            written = write_answer(MetadataResponse(topics=(), **head), parts, count, version, 99)
            assert written == response_frame(MetadataResponse(topics=rows[:count], **head), version, 99)


def test_replicas_without_a_broker_are_offline_and_a_leader_must_be_there() -> None:
    row = describe_topic(a_topic("t", 1, leader=7), an_image().brokers, 0, 13).partitions[0]
    assert (row.error_code, row.leader_id, list(row.offline_replicas)) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2, 3])
    row = describe_topic(a_topic("t", 1, leader=2), an_image().brokers, 0, 13).partitions[0]
    assert (row.error_code, row.leader_id) == (NONE, 2)


def test_a_kept_topic_is_encoded_once_and_anew_when_it_changes() -> None:
    pieces = TopicPieces()
    topic = a_topic("t", 3)
    image = an_image(topic)
    first = one(pieces, topic, image)
    assert one(pieces, topic, image) is first
    assert one(pieces, topic, image, 8) != first
    assert one(pieces, topic, image, 9, TOPIC_OPERATIONS) != first
    larger = a_topic("t", 4)
    assert one(pieces, larger, an_image(larger, brokers=())) != first
    assert one(pieces, topic, an_image(topic, brokers=(1, 2, 3))) != first
    assert one(pieces, topic, an_image(topic)) == first


def test_a_large_topic_is_encoded_in_pieces() -> None:
    pieces, topic = TopicPieces(), a_topic("t", 10 * PARTITIONS_AT_ONCE)
    image = an_image(topic)
    turns = 0

    async def main() -> None:
        nonlocal turns
        task = asyncio.get_running_loop().create_task(every(pieces, [topic], image, 12))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert await task == [encode_topic(describe_topic(topic, image.brokers, UNTOLD_OPERATIONS, 12), 12)]

    asyncio.run(main())
    assert turns >= 10


def test_a_topic_that_was_encoded_for_brokers_of_the_past_is_not_kept() -> None:
    pieces, topic = TopicPieces(), a_topic("t", 10 * PARTITIONS_AT_ONCE)
    before, after = an_image(topic), an_image(topic, brokers=(1, 2, 3))

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(every(pieces, [topic], before, 9))
        await asyncio.sleep(0)
        (now,) = await every(pieces, [topic], after, 9)
        assert await task != [now]
        assert await every(pieces, [topic], after, 9) == [now]

    asyncio.run(main())


def test_all_topics_are_joined_once_and_anew_when_one_changes() -> None:
    pieces = TopicPieces()
    image = an_image(a_topic("b", 1), a_topic("a", 2))
    joined = asyncio.run(pieces.all(image, "PLAINTEXT", 9))
    assert asyncio.run(pieces.all(image, "PLAINTEXT", 9)) is joined
    assert joined == one(pieces, image.topics["a"], image) + one(pieces, image.topics["b"], image)
    more = Image(topics=image.topics.changed({"c": a_topic("c", 1)}), brokers=image.brokers)
    assert len(asyncio.run(pieces.all(more, "PLAINTEXT", 9))) > len(joined)
    elsewhere = Image(topics=more.topics, brokers={})
    assert asyncio.run(pieces.all(elsewhere, "PLAINTEXT", 9)) != asyncio.run(pieces.all(more, "PLAINTEXT", 9))


def test_what_is_kept_has_a_bound() -> None:
    pieces = TopicPieces(kept_bytes_max=10_000)
    topics = [a_topic(f"t{n}", 10) for n in range(100)]
    image = an_image(*topics)
    for _ in range(3):
        for topic in topics:
            one(pieces, topic, image)
            kept = sum(len(piece) for by_name in pieces._pieces.values() for _, piece in by_name.values())
            assert kept <= 10_000 + 1_000


def test_answers_follow_the_image() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        assert codes(await cluster.metadata(None)) == {"t": NONE}
        await cluster.create("u")
        assert codes(await cluster.metadata(None)) == {"t": NONE, "u": NONE}
        await cluster.controller.ask(DeleteTopics((TopicRef("t"),)))
        assert codes(await cluster.metadata(None)) == {"u": NONE}
        assert codes(await cluster.metadata("t", allow_auto_topic_creation=False)) == {"t": UNKNOWN}
        again = await cluster.metadata("t")
        assert again.topics[0].topic_id == cluster.controller.image.topics["t"].topic_id

    clustered(story)
