"""CreateTopics, DeleteTopics, CreatePartitions in every version: results, errors, time-outs."""

import asyncio
from typing import Any

import pytest

from penstock.host.lossy import LossyDisk
from penstock.metadata.commands import NewTopic
from penstock.model.errors import ErrorCode
from penstock.server.quorum.metadata_log import METADATA_LOG
from penstock.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.types import ZERO_UUID
from tests.unit.server.handlers.bare_node import NONE, a_batch, only, to_produce
from tests.unit.server.handlers.cluster import NODE, Cluster, clustered

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


def a_topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(
    cluster: Cluster, *topics: CreatableTopic, version: int = 7, timeout_ms: int = 60_000, validate_only: bool = False
) -> Any:
    request = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    return (await cluster.ask(cluster.topics.create_topics, request, version)).topics


async def delete(
    cluster: Cluster, *names: str, ids: tuple[bytes, ...] = (), version: int = 6, timeout_ms: int = 60_000
) -> Any:
    if version >= 6:
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        states += [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
    return (await cluster.ask(cluster.topics.delete_topics, request, version)).responses


async def grow(
    cluster: Cluster,
    *topics: tuple[str, int],
    version: int = 3,
    timeout_ms: int = 60_000,
    validate_only: bool = False,
    assignments: Any = None,
) -> Any:
    asked = [CreatePartitionsTopic(name=name, count=count, assignments=assignments) for name, count in topics]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=timeout_ms, validate_only=validate_only)
    return (await cluster.ask(cluster.topics.create_partitions, request, version)).results


def told(results: Any) -> list[tuple[str | None, ErrorCode]]:
    return [(result.name, result.error_code) for result in results]


async def can_write(cluster: Cluster, topic: str, index: int = 0) -> bool:
    return only(await cluster.produce(to_produce((topic, index, a_batch())))).error_code is NONE


# --- CreateTopics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        (made,) = await create(cluster, a_topic("t", 3, retention_ms="7"), version=version)
        assert (made.name, made.error_code, made.error_message) == ("t", NONE, None)
        assert await can_write(cluster, "t", 2), "it is ready when the answer comes"
        assert made.topic_id == (cluster.controller.image.topics["t"].topic_id if version >= 7 else ZERO_UUID)
        assert (made.num_partitions, made.replication_factor) == ((3, 1) if version >= 5 else (-1, -1))
        configs = {config.name: config for config in made.configs}
        assert bool(configs) == (version >= 5)
        if configs:
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("7", 1)
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
        assert told(await create(cluster, a_topic("t"), version=version)) == [("t", ErrorCode.TOPIC_ALREADY_EXISTS)]

    clustered(story, sync_s=0.001)


@pytest.mark.parametrize("version", range(2, 8))
def test_validation_creates_nothing(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        (made,) = await create(cluster, a_topic("t", 3), version=version, validate_only=True)
        assert made.error_code is NONE
        assert "t" not in cluster.controller.image.topics

    clustered(story)


def test_one_topic_that_is_refused_does_not_stop_the_others() -> None:
    async def story(cluster: Cluster) -> None:
        results = await create(
            cluster,
            a_topic("good"),
            a_topic("no good"),
            a_topic("none", 0),
            a_topic("wide", 1, 3),
            a_topic("odd", retention_ms="x"),
            a_topic("null", retention_ms=None),
            a_topic("twice"),
            a_topic("twice"),
            a_topic("default", -1, -1),
        )
        assert dict(told(results)) == {
            "good": NONE,
            "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "none": ErrorCode.INVALID_PARTITIONS,
            "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
            "odd": ErrorCode.INVALID_CONFIG,
            "null": ErrorCode.INVALID_CONFIG,
            "default": NONE,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        assert all((result.error_message is None) == (result.error_code is NONE) for result in results)
        assert sorted(cluster.controller.image.topics) == ["default", "good"]
        assert await create(cluster) == ()

    clustered(story)


def test_partitions_where_the_asker_wants_them() -> None:
    async def story(cluster: Cluster) -> None:
        for broker, code in ((NODE, NONE), (7, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
            topic = CreatableTopic(
                name=f"t{broker}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=[broker]) for n in (1, 0)],
                configs=(),
            )
            assert told(await create(cluster, topic)) == [(f"t{broker}", code)]
        assert await can_write(cluster, f"t{NODE}", 1)

    clustered(story)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all_is_a_time_out_and_nothing_is_done(timeout_ms: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("old")
        (made,) = await create(cluster, a_topic("t"), timeout_ms=timeout_ms)
        assert (made.error_code, made.error_message, made.num_partitions) == (TIMED_OUT, None, -1)
        (grown,) = await grow(cluster, ("old", 2), timeout_ms=timeout_ms)
        assert (grown.error_code, grown.error_message) == (TIMED_OUT, None)
        (deleted,) = await delete(cluster, "old", timeout_ms=timeout_ms)
        assert (deleted.name, deleted.error_code, deleted.error_message) == ("old", TIMED_OUT, None)
        await asyncio.sleep(10)
        assert {name: len(t.partitions) for name, t in cluster.controller.image.topics.items()} == {"old": 1}

    clustered(story)


def test_a_time_out_while_the_disk_is_slow_and_what_was_asked_is_done_all_the_same() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert told(await create(cluster, a_topic("t", 2), timeout_ms=500)) == [("t", TIMED_OUT)]
        assert 0.5 <= loop.time() - began < 0.6
        await asyncio.sleep(60)
        results = await create(cluster, a_topic("u", 2), a_topic("x x"), timeout_ms=5_500)
        assert dict(told(results)) == {"u": TIMED_OUT, "x x": ErrorCode.INVALID_TOPIC_EXCEPTION}, "not ready in time"
        assert "u" in cluster.controller.image.topics
        await asyncio.sleep(60)
        assert cluster.partitions.named("t", 1)
        assert cluster.partitions.named("u", 1)
        assert told(await grow(cluster, ("t", 3), timeout_ms=500)) == [("t", TIMED_OUT)]
        assert told(await delete(cluster, "u", timeout_ms=500)) == [("u", TIMED_OUT)]
        await asyncio.sleep(60)
        assert cluster.partitions.named("t", 2)
        assert "u" not in cluster.controller.image.topics

    clustered(story, sync_s=2.0)


def test_a_controller_that_is_offline_is_a_storage_error_for_every_topic() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        disk = cluster.disk
        assert isinstance(disk, LossyDisk)
        disk.fail_next("write", f"logs/{METADATA_LOG}/{0:020d}-0.log")
        broken = ErrorCode.KAFKA_STORAGE_ERROR
        assert told(await create(cluster, a_topic("a"), a_topic("b"))) == [("a", broken), ("b", broken)]
        (failed,) = await grow(cluster, ("t", 2))
        assert (failed.error_code, failed.error_message[:28]) == (broken, "the controller is offline: a")
        assert told(await delete(cluster, "t")) == [("t", broken)]
        assert (await cluster.metadata("t")).topics[0].error_code is NONE

    clustered(story)


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", "u")
        topic_id = cluster.controller.image.topics["t"].topic_id
        results = await delete(cluster, "t", "nobody", version=version)
        assert told(results) == [("t", NONE), ("nobody", UNKNOWN)]
        assert results[0].topic_id == (topic_id if version >= 6 else ZERO_UUID)
        sentence = "This server does not host this topic-partition."
        assert results[1].error_message == (sentence if version >= 5 else None)
        assert not await can_write(cluster, "t")
        assert await can_write(cluster, "u")

    clustered(story, sync_s=0.001)


def test_topics_are_deleted_by_id() -> None:
    async def story(cluster: Cluster) -> None:
        a, b = await cluster.create("a", "b")
        results = await delete(cluster, "b", ids=(a.topic_id, b"x" * 16))
        assert [(result.name, result.topic_id, result.error_code) for result in results] == [
            ("b", b.topic_id, NONE),
            ("a", a.topic_id, NONE),
            (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    clustered(story)


@pytest.mark.parametrize("version", range(1, 7))
def test_deletion_may_be_disabled(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert told(await delete(cluster, "t", version=version)) == [("t", code)]
        assert await can_write(cluster, "t")

    clustered(story, settings={"delete.topic.enable": "false"})


# --- CreatePartitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_every_version_grows(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 2))
        assert told(await grow(cluster, ("t", 5), version=version, validate_only=True)) == [("t", NONE)]
        assert not await can_write(cluster, "t", 4)
        assert told(await grow(cluster, ("t", 5), version=version)) == [("t", NONE)]
        assert await can_write(cluster, "t", 4), "it is ready when the answer comes"
        results = await grow(cluster, ("t", 5), ("nobody", 2), version=version)
        assert told(results) == [("t", ErrorCode.INVALID_PARTITIONS), ("nobody", UNKNOWN)]
        assert results[0].error_message == "Topic already has 5 partition(s)."

    clustered(story, sync_s=0.001)


def test_new_partitions_where_the_asker_wants_them() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        for broker, code in ((7, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (NODE, NONE)):
            assignments = [CreatePartitionsAssignment(broker_ids=[broker])]
            assert told(await grow(cluster, ("t", 2), assignments=assignments)) == [("t", code)]

    clustered(story)


def test_many_topics_are_created_in_several_decisions_and_duplicates_are_refused_once() -> None:
    async def story(cluster: Cluster) -> None:
        topics = [a_topic(f"t{number}") for number in range(150)] + [
            a_topic("twice"),
            a_topic("twice"),
            a_topic("twice"),
        ]
        before = cluster.controller.end_offset
        results = await create(cluster, *topics)
        assert told(results) == [(f"t{number}", NONE) for number in range(150)] + [("twice", ErrorCode.INVALID_REQUEST)]
        assert cluster.controller.end_offset == before + 300
        deleted = await delete(cluster, *[f"t{number}" for number in range(150)], "t0", "t0")
        assert dict(told(deleted))["t0"] is ErrorCode.INVALID_REQUEST
        assert list(dict(told(deleted)).values()).count(NONE) == 149

    clustered(story)


def test_more_partitions_than_allowed_are_refused_for_every_topic_of_a_request() -> None:
    async def story(cluster: Cluster) -> None:
        results = await create(cluster, a_topic("a", 6_000), a_topic("b", 6_000))
        assert told(results) == [("a", ErrorCode.POLICY_VIOLATION), ("b", ErrorCode.POLICY_VIOLATION)]
        many = {f"setting.{number}": "1" for number in range(1_001)}
        results = await create(cluster, a_topic("c", 1, 1, **many), a_topic("d"))
        assert told(results) == [("d", NONE), ("c", ErrorCode.INVALID_REQUEST)]

    clustered(story)
