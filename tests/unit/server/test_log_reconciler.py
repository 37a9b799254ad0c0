"""The node follows the image: logs come and go with topics, settings change at run time, crashes are repaired."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.host.lossy import LossyDisk
from penstock.log.settings import Durability
from penstock.metadata.commands import (
    ConfigChanges,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from penstock.metadata.image import BROKER, TOPIC
from penstock.metadata.records import ConfigRecord
from penstock.model.errors import ErrorCode
from penstock.records.header import TimestampType
from tests.unit.server.handlers.bare_node import NONE, a_batch, only, part, parts_of, to_fetch, to_produce
from tests.unit.server.handlers.cluster import NODE, Cluster, a_disk, clustered, on_virtual_time

SET, DELETE = 0, 1


async def delete(cluster: Cluster, *names: str) -> None:
    results = await cluster.controller.ask(DeleteTopics(tuple(TopicRef(name) for name in names)))
    assert not any(result.code for result in results)


async def configure(cluster: Cluster, kind: int, name: str, **configs: str | None) -> None:
    changes = tuple((key.replace("_", "."), DELETE if value is None else SET, value) for key, value in configs.items())
    (result,) = await cluster.controller.ask(IncrementalAlterConfigs((ConfigChanges(kind, name, changes),), NODE))
    assert result.code is ErrorCode.NONE, result


async def produce(cluster: Cluster, topic: str, index: int = 0, **options: Any) -> ErrorCode:
    return only(await cluster.produce(to_produce((topic, index, a_batch()), **options))).error_code


def lives(*stories: Callable[[Cluster], Awaitable[None]], is_clean: bool = True) -> None:
    """Runs one story per life of the same node; between lives it is stopped, or its power fails."""

    async def main() -> None:
        disk = a_disk()
        for number, story in enumerate(stories):
            cluster = Cluster(disk, seed=number)
            await cluster.start()
            await story(cluster)
            if is_clean:
                await cluster.stop()
            else:
                disk = disk.power_cut()
                await cluster.crash()

    on_virtual_time(main)


# --- creation and deletion of topics ----------------------------------------------------------------------------------


def test_a_created_topic_can_be_written_and_read_when_it_has_settled() -> None:
    async def story(cluster: Cluster) -> None:
        (made,) = await cluster.create(NewTopic("t", 3))
        assert sorted(cluster.topic_logs) == ["t-0", "t-1", "t-2"]
        assert await produce(cluster, "t", 2) is NONE
        partition = cluster.partitions.identified(made.topic_id, 2)
        assert partition is cluster.partitions.named("t", 2)
        assert partition is not None
        assert partition.log.identity.topic_id == made.topic_id.hex()
        assert partition.leader_epoch == 0
        assert parts_of(await cluster.fetch(to_fetch(part(2, 0))))[2].high_watermark == 1

    clustered(story)


def test_settling_waits_for_the_logs() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.ask(CreateTopics((NewTopic("t", 2),)))
        assert cluster.partitions.named("t", 0) is None
        assert await produce(cluster, "t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.arrivals.settled(["t", "nobody"])
        assert cluster.partitions.named("t", 1) is not None

    clustered(story, sync_s=0.01)


def test_a_topic_grows() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        before = cluster.partitions.named("t", 0)
        assert await produce(cluster, "t") is NONE
        await cluster.controller.ask(CreatePartitions((MorePartitions("t", 3),)))
        await cluster.arrivals.settled(["t"])
        assert cluster.partitions.named("t", 0) is before
        assert await produce(cluster, "t", 2) is NONE

    clustered(story)


def test_a_topic_that_changes_while_it_is_being_made_settles_when_all_is_done() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.ask(CreateTopics((NewTopic("t", 40),)))
        await cluster.controller.ask(CreatePartitions((MorePartitions("t", 60),)))
        assert cluster.partitions.named("t", 39) is None
        await cluster.arrivals.settled(["t"])
        assert await produce(cluster, "t", 59) is NONE

    clustered(story, sync_s=0.01)


def test_a_deleted_topic_is_gone_at_once_and_its_files_soon() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 2), "u")
        assert await produce(cluster, "t") is NONE
        await delete(cluster, "t")
        assert cluster.partitions.named("t", 0) is None
        assert await produce(cluster, "t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.arrivals.settled(["t"])
        assert list(cluster.topic_logs) == ["u-0"]
        assert cluster.disk.list("logs") == ["__cluster_metadata-0", "u-0"]
        assert await produce(cluster, "u") is NONE

    clustered(story, sync_s=0.01)


def test_a_fetch_that_waits_on_a_deleted_topic_is_told_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        loop = asyncio.get_running_loop()
        began = loop.time()
        fetching = loop.create_task(cluster.fetch(to_fetch(part(0, 0), max_wait_ms=60_000, min_bytes=1)))
        await asyncio.sleep(0.2)
        await delete(cluster, "t")
        assert parts_of(await fetching)[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert loop.time() - began < 1

    clustered(story, sync_s=0.1)


def test_a_producer_whose_topic_is_deleted_before_its_records_are_durable_is_told_so() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        partition = cluster.partitions.named("t", 0)
        assert partition is not None
        producing = asyncio.get_running_loop().create_task(produce(cluster, "t", timeout_ms=60_000))
        await asyncio.sleep(0.01)
        cluster.partitions.remove(partition, is_deleted=True)
        assert await producing is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    clustered(story, sync_s=0.1)


def test_a_topic_that_is_created_again_begins_empty_under_another_id() -> None:
    async def story(cluster: Cluster) -> None:
        (old,) = await cluster.create("t")
        assert await produce(cluster, "t") is NONE
        deleting = delete(cluster, "t")
        creating = cluster.create("t")
        _, (new,) = await asyncio.gather(deleting, creating)
        assert new.topic_id != old.topic_id
        assert cluster.partitions.identified(old.topic_id, 0) is None
        partition = cluster.partitions.identified(new.topic_id, 0)
        assert partition is not None
        assert partition.log.written_end == 0
        assert await produce(cluster, "t") is NONE

    clustered(story, sync_s=0.01)


def test_many_topics_and_partitions_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(*(NewTopic(f"t{n}", 1 + n % 40) for n in range(40)))
        assert len(cluster.partitions) == sum(1 + n % 40 for n in range(40))
        await delete(cluster, *(f"t{n}" for n in range(40)))
        await cluster.arrivals.settled([f"t{n}" for n in range(40)])
        assert not cluster.topic_logs
        assert len(cluster.partitions) == 0

    clustered(story)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_of_a_topic_change_live() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 2), "u")
        partition, other = cluster.partitions.named("t", 1), cluster.partitions.named("u", 0)
        assert partition is not None
        assert other is not None
        await configure(
            cluster,
            TOPIC,
            "t",
            retention_ms="77",
            segment_bytes="2000000",
            max_message_bytes="5000",
            message_timestamp_type="LogAppendTime",
            cleanup_policy="compact",
            min_insync_replicas="2",
        )
        assert partition.log.settings.segment_bytes == 2_000_000
        assert partition.log.settings.retention_ms is None, "nothing but compaction removes records"
        assert partition.rules.batch_bytes_max == 5_000
        assert partition.rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert partition.rules.is_compacted
        assert not partition.can_delete
        assert partition.in_sync_min == 1, "as in Kafka, no more than it has replicas"
        assert await produce(cluster, "t", 1) is ErrorCode.NONE
        assert other.can_delete
        await configure(cluster, TOPIC, "t", cleanup_policy="", min_insync_replicas=None, retention_ms="77")
        assert partition.can_delete
        await configure(cluster, TOPIC, "t", cleanup_policy="delete")
        assert partition.log.settings.retention_ms == 77
        assert await produce(cluster, "t", 1) is NONE

    clustered(story)


def test_settings_of_the_broker_are_the_defaults_of_topics_live() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", NewTopic("u", configs=(("retention.ms", "5"),)))
        t, u = cluster.partitions.named("t", 0), cluster.partitions.named("u", 0)
        assert t is not None
        assert u is not None
        await configure(cluster, BROKER, "", log_retention_ms="99", message_max_bytes="4000")
        assert (t.log.settings.retention_ms, u.log.settings.retention_ms) == (99, 5)
        assert u.rules.batch_bytes_max == 4_000
        await configure(cluster, BROKER, str(NODE), log_retention_ms="88")
        assert t.log.settings.retention_ms == 88
        await configure(cluster, BROKER, str(NODE), log_retention_ms=None)
        await configure(cluster, BROKER, "", log_retention_ms=None)
        assert t.log.settings.retention_ms == 604_800_000

    clustered(story)


def test_who_waits_for_a_sync_goes_when_the_topic_no_longer_asks_for_one() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        partition = cluster.partitions.named("t", 0)
        assert partition is not None
        assert partition.log.settings.durability is Durability.FSYNC
        changing = asyncio.get_running_loop().create_task(configure(cluster, TOPIC, "t", durability="replicated"))
        await asyncio.sleep(0.005)
        cluster.append(partition)  # too late for the round that makes the change durable
        waiting = partition.committed.wait_for(1)
        await changing
        assert waiting.done()

    clustered(story, sync_s=0.01)


def test_settings_are_there_again_after_a_restart() -> None:
    async def first(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", configs=(("retention.ms", "5"), ("durability", "replicated"))))
        await configure(cluster, BROKER, "", message_max_bytes="4000")

    async def second(cluster: Cluster) -> None:
        partition = cluster.partitions.named("t", 0)
        assert partition is not None
        assert partition.log.settings.retention_ms == 5
        assert partition.log.settings.durability is Durability.REPLICATED
        assert partition.rules.batch_bytes_max == 4_000

    lives(first, second)


def test_a_stored_setting_that_no_longer_parses_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def first(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", configs=(("retention.ms", "5"),)))
        for name, value in (("segment.ms", "of the future"), ("new.setting", "1")):
            record = ConfigRecord(resource_type=TOPIC, resource_name="t", name=name, value=value)
            cluster.controller.runtime._record([record], None)

    async def second(cluster: Cluster) -> None:
        partition = cluster.partitions.named("t", 0)
        assert partition is not None
        assert partition.log.settings.retention_ms == 5
        assert "goes without a setting of its own" in caplog.text

    lives(first, second)


# --- restarts and crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_finds_everything_again(is_clean: bool) -> None:
    async def first(cluster: Cluster) -> None:
        await cluster.create(NewTopic("t", 3), "gone")
        assert await produce(cluster, "t", 1) is NONE
        await delete(cluster, "gone")

    async def second(cluster: Cluster) -> None:
        assert sorted(cluster.topic_logs) == ["t-0", "t-1", "t-2"]
        found = parts_of(await cluster.fetch(to_fetch(part(1, 0))))[1]
        assert found.high_watermark == 1
        assert await produce(cluster, "t", 1) is NONE

    lives(first, second, second_and_empty, is_clean=is_clean)


async def second_and_empty(cluster: Cluster) -> None:
    await delete(cluster, "t")
    await cluster.arrivals.settled(["t"])
    assert not cluster.topic_logs


def test_a_crash_between_commit_and_creation_is_mended_at_the_next_start() -> None:
    async def main() -> None:
        disk = a_disk(0.01)
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.controller.ask(CreateTopics((NewTopic("t", 3),)))
        assert not cluster.topic_logs
        disk = disk.power_cut()
        await cluster.crash()
        again = Cluster(disk, seed=2)
        await again.start()
        assert sorted(again.topic_logs) == ["t-0", "t-1", "t-2"]
        assert await produce(again, "t", 2) is NONE
        await again.stop()

    on_virtual_time(main)


def test_a_crash_between_commit_and_deletion_is_mended_at_the_next_start() -> None:
    async def main() -> None:
        disk = a_disk(0.01)
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create(NewTopic("t", 3), "u")
        await delete(cluster, "t")
        assert "t-2" in cluster.topic_logs
        disk = disk.power_cut()
        await cluster.crash()
        again = Cluster(disk, seed=2)
        await again.start()
        assert list(again.topic_logs) == ["u-0"]
        await again.stop()

    on_virtual_time(main)


@pytest.mark.parametrize("seed", range(15))
def test_a_power_cut_anywhere_leaves_nothing_between_image_and_logs(seed: int) -> None:
    """Topics are created, extended, deleted and recreated; after any power cut the next start agrees with the image."""

    async def main() -> None:
        disk = a_disk(0.002, seed)
        for life in range(4):
            cluster = Cluster(disk, seed=100 * seed + life)
            await cluster.start()
            image = cluster.controller.image
            wanted = sorted(f"{t.name}-{n}" for _, t in image.topics.items() for n in t.partitions)
            assert sorted(cluster.topic_logs) == wanted
            for partition in cluster.partitions:
                assert image.topics[partition.topic].topic_id == partition.topic_id
                assert partition.log.identity.topic_id == partition.topic_id.hex()
            assert len(cluster.partitions) == len(wanted)
            work = asyncio.get_running_loop().create_task(churn(cluster))
            await asyncio.sleep(0.001 * ((37 * seed + 11 * life) % 101))
            survivor = disk.power_cut()
            work.cancel()
            await asyncio.gather(work, cluster.crash(), return_exceptions=True)
            disk = survivor

    async def churn(cluster: Cluster) -> None:
        for n in range(1_000):
            name = f"t{n % 3}"
            if name in cluster.controller.image.topics:
                size = len(cluster.controller.image.topics[name].partitions)
                if size < 3:
                    await cluster.controller.ask(CreatePartitions((MorePartitions(name, size + 1),)))
                else:
                    await cluster.controller.ask(DeleteTopics((TopicRef(name),)))
            else:
                await cluster.controller.ask(CreateTopics((NewTopic(name, 1),)))

    on_virtual_time(main)


def test_a_log_that_the_cluster_never_heard_of_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A metadata log restored from an old backup must not delete topics that are not in it."""

    async def first(cluster: Cluster) -> None:
        await cluster.create("t")
        stray = await cluster.directory.create("stray", "ab" * 16, 0)
        beyond = await cluster.directory.create("t", cluster.controller.image.topics["t"].topic_id.hex(), 7)
        for log in (stray, beyond):
            log.append(a_batch(), leader_epoch=0, now_ms=cluster.clock.wall_ms())

    async def second(cluster: Cluster) -> None:
        assert sorted(cluster.topic_logs) == ["stray-0", "t-0", "t-7"]
        assert cluster.partitions.named("stray", 0) is None
        assert cluster.partitions.named("t", 7) is None
        assert caplog.text.count("the cluster never heard of") == 2
        asking = cluster.controller.ask(CreateTopics((NewTopic("stray"),)))
        assert (await asking)[0].code is NONE
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cluster.arrivals.settled(["stray"]), 5)
        assert caplog.text.count("a log stray-0 of another topic is in its place") == 1
        assert cluster.topic_logs["stray-0"].written_end == 1
        await cluster.create("other")

    with caplog.at_level(logging.WARNING):
        lives(first, second)


def test_a_log_that_cannot_be_made_is_tried_again_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        disk = cluster.disk
        assert isinstance(disk, LossyDisk)
        disk.fail_next("write", "logs/t-1/manifest.new", count=3, code=errno.ENOSPC)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(cluster.create(NewTopic("t", 3)), cluster.create("u"))
        assert 3 <= asyncio.get_running_loop().time() - began < 4
        assert await produce(cluster, "t", 1) is NONE
        assert "Topic t is not ready here, and is tried again every second" in caplog.text

    clustered(story)


def test_who_gives_up_waiting_for_a_topic_does_not_hinder_others() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.ask(CreateTopics((NewTopic("t", 5),)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cluster.arrivals.settled(["t"]), 0.01)
        await cluster.arrivals.settled(["t"])
        assert cluster.partitions.named("t", 4) is not None

    clustered(story, sync_s=0.01)


def test_a_log_is_removed_only_while_upkeep_leaves_it_alone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t")
        async with cluster.upkeep.lock:
            await delete(cluster, "t")
            await asyncio.sleep(1)
            assert "t-0" in cluster.topic_logs
        await cluster.arrivals.settled(["t"])
        assert not cluster.topic_logs

    clustered(story)


def test_a_start_makes_no_manifest_anew_for_logs_that_are_well() -> None:
    async def main() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create(NewTopic("t", 20))
        await cluster.stop()
        disk.fail_next("write", "logs/t-3/manifest.new")
        again = Cluster(disk, seed=2)
        await again.start()
        assert len(again.partitions) == 20
        await again.crash()

    on_virtual_time(main)
