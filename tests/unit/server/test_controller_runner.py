"""The controller on its log: replies wait for the disk, images are published in order, a power cut undoes no reply."""

import asyncio
import errno
from typing import Any

import pytest

from penstock.host.lossy import LossyDisk
from penstock.log.settings import Durability
from penstock.metadata.changes import Changes
from penstock.metadata.cluster_commands import Heartbeat, UnregisterBroker
from penstock.metadata.commands import (
    ConfigChanges,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    RegisterBroker,
    TopicRef,
)
from penstock.metadata.controller import Controller
from penstock.metadata.draft import InconsistentRecord
from penstock.metadata.events import LogRead
from penstock.metadata.image import BROKER, TOPIC, Image
from penstock.metadata.records import BrokerRegistrationChangeRecord, FeatureLevelRecord, RemoveTopicRecord
from penstock.metadata.runtime import ControllerRuntime, NotController
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import BatchTooLarge, ErrorCode, StorageError
from penstock.model.shard import Command
from penstock.records.header import batches
from penstock.server.controller.metadata_reader import APPLIED_AT_ONCE
from penstock.server.quorum.metadata_log import METADATA_LOG, METADATA_SETTINGS, Unrecordable, batch_of, records_in
from penstock.server.settings import CannotStart
from penstock.simulator.entropy import SimulatedEntropy
from tests.unit.server.handlers.cluster import FEATURES, NODE, Cluster, a_disk, clustered, on_virtual_time

SET = 0
SEGMENT = f"logs/{METADATA_LOG}/{0:020d}-0.log"


def one(name: str, *configs: tuple[str, str]) -> CreateTopics:
    return CreateTopics((NewTopic(name, configs=configs),))


def names(image: Image) -> list[str]:
    return sorted(image.topics)


def test_a_reply_waits_for_the_sync_and_so_does_the_image() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = loop.create_task(cluster.controller.ask(one("t")))
        await asyncio.sleep(0.05)
        assert "t" not in cluster.controller.image.topics
        assert not asking.done()
        (reply,) = await asking
        assert reply.code is ErrorCode.NONE
        assert loop.time() - began >= 0.1
        assert cluster.controller.image.topics["t"].topic_id == reply.topic_id

    clustered(story, sync_s=0.1)


def test_overlapping_commands_see_each_other_and_share_rounds() -> None:
    async def story(cluster: Cluster) -> None:
        rounds = cluster.rounds.rounds
        seen: list[list[str]] = []
        cluster.controller.subscribe(lambda _changes, image: seen.append(names(image)))
        replies = await asyncio.gather(*(cluster.controller.ask(one(name)) for name in ("a", "b", "a", "c")))
        assert [reply[0].code for reply in replies] == [0, 0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]
        assert cluster.rounds.rounds - rounds <= 2
        assert seen[-1] == ["a", "b", "c"]
        assert seen == sorted(seen)

    clustered(story, sync_s=0.1)


def test_a_refusal_that_rests_on_something_undurable_waits_for_it() -> None:
    """A client that learns that a topic exists must be able to rely on it."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        first = loop.create_task(cluster.controller.ask(one("t")))
        await asyncio.sleep(0.01)
        second = loop.create_task(cluster.controller.ask(one("t")))
        await asyncio.sleep(0.05)
        assert not second.done()
        await second
        assert first.done()
        assert second.result()[0].code is ErrorCode.TOPIC_ALREADY_EXISTS

    clustered(story, sync_s=0.1)


def test_what_is_refused_or_only_validated_writes_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        log = cluster.directory.logs[METADATA_LOG]
        end = log.written_end
        await cluster.controller.ask(CreateTopics((NewTopic("t"),), validate_only=True))
        await cluster.controller.ask(CreateTopics((NewTopic("no good"),)))
        assert log.written_end == end

    clustered(story)


def test_changes_are_published_before_replies_leave() -> None:
    async def story(cluster: Cluster) -> None:
        order: list[str] = []

        def on_image(changes: Changes, _image: Image) -> None:
            order.extend(f"published {topic.name}" for topic in changes.topics_created)

        async def ask(name: str) -> None:
            await cluster.controller.ask(one(name))
            order.append(f"answered {name}")

        cluster.controller.subscribe(on_image)
        await asyncio.gather(ask("a"), ask("b"))
        await ask("c")
        assert order.index("published a") < order.index("answered a") < order.index("published c")
        assert order.index("published b") < order.index("answered b") < order.index("published c")

    clustered(story, sync_s=0.01)


def test_a_replay_gives_the_same_image() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create("a", NewTopic("b", 3, configs=(("retention.ms", "5"),)), "c")
        await cluster.controller.ask(DeleteTopics((TopicRef("a"),)))
        change = ConfigChanges(BROKER, "", (("log.retention.ms", SET, "77"),))
        await cluster.controller.ask(IncrementalAlterConfigs((change,), NODE))
        image, settings = cluster.controller.image, cluster.controller.settings
        assert settings.number("log.retention.ms") == 77
        replayed = Controller(NODE, BrokerSettings(), SimulatedEntropy(cluster.entropy._stream))
        for batch in batches(cluster.quorum.read(0, 1 << 20)):
            for record in records_in(batch):
                replayed.apply(record)
        assert replayed.image == image
        await cluster.stop()
        again = Cluster(disk, seed=2)
        await again.load()
        assert again.controller.image == image
        assert again.controller.settings.number("log.retention.ms") == 77
        await again.start()
        assert again.controller.image.brokers[NODE].epoch > image.brokers[NODE].epoch
        await again.stop()

    on_virtual_time(story)


def _records(cluster: Cluster) -> list[Any]:
    return [record for batch in batches(cluster.quorum.read(0, 1 << 20)) for record in records_in(batch)]


def _levels_recorded(cluster: Cluster) -> int:
    return sum(isinstance(record, FeatureLevelRecord) for record in _records(cluster))


def test_the_first_start_says_which_features_are_on_and_later_ones_do_not() -> None:
    async def story() -> None:
        disk = a_disk()
        ends = []
        for seed in range(3):
            cluster = Cluster(disk, seed=seed)
            await cluster.start()
            assert cluster.controller.image.features == {"metadata.version": 29}
            broker = cluster.controller.image.brokers[NODE]
            assert [feature.name for feature in broker.features] == [feature.name for feature in FEATURES]
            assert broker.log_dirs == (bytes.fromhex(cluster.directory.identity["directory_id"]),)
            ends.append(_levels_recorded(cluster))
            await cluster.stop()
        assert ends == [1, 1, 1]

    on_virtual_time(story)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_undoes_no_reply_and_shows_nothing_undurable(seed: int) -> None:
    """Topics are created one after the other; the power fails at some point, also during syncs."""
    cut_s = 0.001 * (17 * seed % 97)

    async def story() -> None:
        disk = a_disk(0.01, seed)
        answered: list[str] = []
        shown: list[str] = []
        for life in range(3):
            cluster = Cluster(disk, seed=100 * seed + life)
            await cluster.start()
            for name in answered:
                assert name in cluster.controller.image.topics, "a reply was undone"
                assert f"{name}-0" in cluster.directory.logs
            for name in shown:
                assert name in cluster.controller.image.topics, "something was shown that did not last"
            work = asyncio.get_running_loop().create_task(create_for_ever(cluster, life, answered, shown))
            await asyncio.sleep(cut_s)
            survivor = disk.power_cut()
            work.cancel()
            await asyncio.gather(work, cluster.crash(), return_exceptions=True)
            disk = survivor
        assert answered or cut_s < 0.05

    async def create_for_ever(cluster: Cluster, life: int, answered: list[str], shown: list[str]) -> None:
        for n in range(1_000):
            name = f"t{life}.{n}"
            asking = asyncio.get_running_loop().create_task(cluster.controller.ask(one(name)))
            while not asking.done():
                shown += [topic.name or "" for topic in (await cluster.metadata(None)).topics]
                await asyncio.sleep(0.003)
            if asking.exception() is None:
                answered.append(name)

    on_virtual_time(story)


def test_a_failed_sync_throws_the_controller_away_with_a_sentence() -> None:
    async def story() -> None:
        disk = a_disk(0.01)
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create("a")
        disk.fail_next("sync", SEGMENT)
        with pytest.raises(StorageError, match="offline: a sync failed"):
            await cluster.controller.ask(one("b"))
        assert names(cluster.controller.image) == ["a"]
        (sentence,) = cluster.sentences
        assert sentence.startswith("This node can take no part in the metadata quorum any more: a sync failed")
        with pytest.raises(StorageError, match="the controller is offline"):
            await cluster.controller.ask(one("c"))
        response = await cluster.metadata("b", allow_auto_topic_creation=True)
        assert response.topics[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.crash()

    on_virtual_time(story)


def test_a_failed_write_throws_the_controller_away() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        disk.fail_next("write", SEGMENT)
        with pytest.raises(StorageError, match="a write failed"):
            await cluster.controller.ask(one("b"))
        assert len(cluster.sentences) == 1
        await cluster.crash()

    on_virtual_time(story)


def test_a_full_disk_refuses_a_command_and_nothing_else() -> None:
    async def story(cluster: Cluster) -> None:
        disk = cluster.disk
        assert isinstance(disk, LossyDisk)
        disk.fail_next("write", SEGMENT, count=2, code=errno.ENOSPC)  # the retry with the reserve fails too
        with pytest.raises(StorageError, match="the disk is full"):
            await cluster.controller.ask(one("b"))
        assert cluster.controller.offline_reason is None
        assert not cluster.sentences
        await cluster.create("b")
        assert names(cluster.controller.image) == ["b"]

    clustered(story)


def test_a_command_that_is_too_large_is_refused_as_a_whole() -> None:
    async def story(cluster: Cluster) -> None:
        change = ConfigChanges(BROKER, "", tuple((f"plugin.{n}", SET, "x" * 32_000) for n in range(600)))
        with pytest.raises(BatchTooLarge):
            await cluster.controller.ask(IncrementalAlterConfigs((change,), NODE))
        assert cluster.controller.offline_reason is None
        assert not cluster.controller.image.config(BROKER, "")
        await cluster.create("b")

    clustered(story)


def test_a_value_that_no_record_can_hold_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        end = cluster.directory.logs[METADATA_LOG].written_end
        change = ConfigChanges(BROKER, "", (("one", SET, "1"), ("two", SET, "x" * 40_000)))
        with pytest.raises(Unrecordable, match="a string of more than 32767 bytes"):
            await cluster.controller.ask(IncrementalAlterConfigs((change,), NODE))
        assert cluster.directory.logs[METADATA_LOG].written_end == end

    clustered(story)


def test_many_large_commands_are_read_in_several_pieces() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        for n in range(3):
            change = ConfigChanges(BROKER, "", tuple((f"plugin.{n}.{i}", SET, "x" * 30_000) for i in range(100)))
            await cluster.controller.ask(IncrementalAlterConfigs((change,), NODE))
        image = cluster.controller.image
        await cluster.stop()
        again = Cluster(disk, seed=2)
        await again.load()
        assert again.controller.image == image

    on_virtual_time(story)


# --- commands in pieces -----------------------------------------------------------------------------------------------


def large(name: str, partitions: int = 2_500) -> CreateTopics:
    return CreateTopics((NewTopic(name, partitions, 1),))


async def begun(cluster: Cluster, command: Command[Any]) -> "asyncio.Task[Any]":
    """Starts a command and returns while it is being decided: other tasks have run, and nothing is appended."""
    end = cluster.controller.end_offset
    task = asyncio.get_running_loop().create_task(cluster.controller.ask(command))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    assert cluster.controller.end_offset == end, "there was no turn before the batch was appended"
    return task


def test_commands_are_carried_out_while_a_large_one_is_decided() -> None:
    async def story(cluster: Cluster) -> None:
        seen: list[dict[str, int]] = []
        cluster.controller.subscribe(
            lambda _changes, image: seen.append({name: len(topic.partitions) for name, topic in image.topics.items()})
        )
        task = await begun(cluster, large("large"))
        (small,) = await cluster.controller.ask(one("small"))
        (created,) = await task
        assert (small.code, created.code, created.partitions) == (ErrorCode.NONE, ErrorCode.NONE, 2_500)
        assert seen[-1] == {"small": 1, "large": 2_500}
        assert all(image.get("large") in (None, 2_500) for image in seen), "half a topic was shown"

    clustered(story)


def test_a_large_command_is_decided_anew_if_its_name_is_taken_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        task = await begun(cluster, large("t"))
        await cluster.controller.ask(one("t"))
        (created,) = await task
        assert created.code is ErrorCode.TOPIC_ALREADY_EXISTS
        task = await begun(cluster, large("a.b"))
        await cluster.controller.ask(one("a_b"))
        (created,) = await task
        assert created.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert {name: len(topic.partitions) for name, topic in cluster.controller.image.topics.items()} == {
            "t": 1,
            "a_b": 1,
        }

    clustered(story)


def test_a_large_growth_is_decided_anew_if_the_topic_changes_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.controller.ask(one("t"))
        task = await begun(cluster, CreatePartitions((MorePartitions("t", 2_500),)))
        await cluster.controller.ask(CreatePartitions((MorePartitions("t", 7),)))
        (grown,) = await task
        assert grown.code is ErrorCode.NONE
        assert list(cluster.controller.image.topics["t"].partitions) == list(range(2_500))
        task = await begun(cluster, CreatePartitions((MorePartitions("t", 4_000),)))
        await cluster.controller.ask(DeleteTopics((TopicRef("t"),)))
        (grown,) = await task
        assert grown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not cluster.controller.image.topics

    clustered(story)


def test_a_large_command_is_placed_anew_if_brokers_change_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        other = RegisterBroker(2, b"i" * 16, 1_000, (), log_dirs=(b"d" * 16,))
        await cluster.controller.ask(other)
        task = await begun(cluster, large("t"))
        await cluster.controller.ask(UnregisterBroker(2))
        (created,) = await task
        assert created.code is ErrorCode.NONE
        partitions = cluster.controller.image.topics["t"].partitions.values()
        assert {broker for partition in partitions for broker in partition.replicas} == {NODE}

    clustered(story)


def test_a_large_command_is_not_carried_out_in_another_term() -> None:
    async def story(cluster: Cluster) -> None:
        end = cluster.controller.end_offset
        task = await begun(cluster, large("t"))
        cluster.quorum.leader_known(2, 1_000, end)
        with pytest.raises(NotController):
            await task
        assert cluster.controller.end_offset == end
        assert not cluster.controller.image.topics

    clustered(story)


def test_a_large_batch_is_applied_in_pieces_and_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot taken between two pieces holds exactly the records up to its position."""
    seen: list[tuple[int, int]] = []
    take_in = ControllerRuntime._take_in

    def watched(controller: ControllerRuntime, event: LogRead) -> None:
        take_in(controller, event)
        topic = controller.image.topics.get("t")
        seen.append((controller.position, 0 if topic is None else len(topic.partitions)))

    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.controller.ask(large("t"))
        end = cluster.controller.end_offset
        await cluster.crash()
        monkeypatch.setattr(ControllerRuntime, "_take_in", watched)
        again = Cluster(disk, seed=2)
        await again.load()
        before = [count for position, count in seen if position < end]
        assert before.count(0) == len(before), "half a batch was shown"
        assert all(count == 2_500 for position, count in seen if position >= end)
        assert len(before) >= 2_500 // APPLIED_AT_ONCE, "the batch was applied at once"
        await again.crash()

    on_virtual_time(story)


def test_a_record_that_does_not_fit_never_reaches_the_log() -> None:
    async def story(cluster: Cluster) -> None:
        log = cluster.directory.logs[METADATA_LOG]
        end = log.written_end
        with pytest.raises(InconsistentRecord):
            cluster.controller.runtime._record([RemoveTopicRecord(topic_id=b"n" * 16)], None)
        assert log.written_end == end

    clustered(story)


def test_logs_without_a_metadata_log_are_not_taken_for_an_empty_cluster() -> None:
    """Otherwise every log in the directory would be an orphan."""

    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        await cluster.create("a")
        await cluster.directory.delete(cluster.directory.logs[METADATA_LOG])
        await cluster.crash()
        again = Cluster(disk, seed=2)
        with pytest.raises(CannotStart, match="has 1 logs but no __cluster_metadata-0"):
            await again.load()

    on_virtual_time(story)


def test_a_metadata_log_that_contradicts_itself_is_not_guessed_at() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        cluster.quorum.append(cluster.quorum.raft.epoch, batch_of([RemoveTopicRecord(topic_id=b"n" * 16)], 0))
        await cluster.stop()
        again = Cluster(disk, seed=2)
        with pytest.raises(StorageError, match="cannot be read: there is no topic with id"):
            await again.load()
        assert len(again.sentences) == 1
        await again.crash()

    on_virtual_time(story)


def test_the_metadata_log_is_synced_and_kept_whatever_topics_are_told() -> None:
    async def story() -> None:
        disk = a_disk()
        for seed in range(2):
            cluster = Cluster(disk, {"log.retention.ms": "1", "durability": "replicated"}, seed=seed)
            await cluster.start()
            assert cluster.directory.logs[METADATA_LOG].settings == METADATA_SETTINGS
            await cluster.stop()

    assert METADATA_SETTINGS.durability is Durability.FSYNC
    assert METADATA_SETTINGS.retention_ms is None
    on_virtual_time(story)


def test_producer_ids_are_given_once_over_blocks_and_lives() -> None:
    async def story() -> None:
        disk = a_disk(0.001)
        given: list[int] = []
        for seed in range(3):
            cluster = Cluster(disk, seed=seed)
            await cluster.start()
            given += await asyncio.gather(*(cluster.producer_ids.next() for _ in range(1_500)))
            await cluster.stop()
        assert len(dict.fromkeys(given)) == 4_500
        assert given[0] == 0
        assert max(given) < 6_000

    on_virtual_time(story)


def test_no_producer_id_comes_from_a_controller_that_is_offline() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        disk.fail_next("write", SEGMENT)
        for _ in range(2):
            with pytest.raises(StorageError):
                await cluster.producer_ids.next()
        await cluster.crash()

    on_virtual_time(story)


def test_a_topics_settings_are_in_the_image() -> None:
    async def story(cluster: Cluster) -> Any:
        await cluster.create(NewTopic("t", configs=(("retention.ms", "5"),)))
        return cluster.controller.image.config(TOPIC, "t")

    assert clustered(story) == {"retention.ms": "5"}


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_a_disk_that_takes_seconds_to_sync_fences_nobody() -> None:
    """R34: a heartbeat is answered at once, whatever waits to be committed."""

    async def story(cluster: Cluster) -> None:
        for n in range(5):
            await cluster.controller.ask(one(f"t{n}"))
            await asyncio.sleep(2)
        assert not [record for record in _records(cluster) if isinstance(record, BrokerRegistrationChangeRecord)]

    clustered(story, sync_s=2.0)


def test_a_heartbeat_is_answered_while_a_command_waits_for_the_disk() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        asking = loop.create_task(cluster.controller.ask(one("t")))
        await asyncio.sleep(0.1)
        began = loop.time()
        epoch = cluster.controller.image.brokers[NODE].epoch
        heard = await cluster.controller.heartbeat(Heartbeat(NODE, epoch, 0, 1))
        assert (heard.code, heard.is_fenced, loop.time() - began) == (ErrorCode.NONE, False, 0.0)
        assert not asking.done()
        await asking

    clustered(story, sync_s=2.0)


def test_a_snapshot_holds_what_the_log_told_and_the_log_begins_there() -> None:
    async def story() -> None:
        disk = a_disk()
        cluster = Cluster(disk)
        await cluster.start()
        for life in range(3):
            for n in range(5):
                await cluster.create(f"t{life}.{n}")
            await cluster.quorum.snapshot(*cluster.controller.snapshot_records())
        await asyncio.sleep(1)
        image = cluster.controller.image
        assert cluster.quorum.log.start_offset > 0
        await cluster.stop()
        again = Cluster(disk, seed=2)
        await again.load()
        assert again.controller.image == image
        assert len(again.quorum.shelf.ids) == 2
        await again.crash()

    on_virtual_time(story)
