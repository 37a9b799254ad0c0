"""Rounds of group commit: a waiter gets a sync at once, other appends get one in time."""

import asyncio
from dataclasses import replace

from tests.unit.server.handlers.bare_node import FSYNC, REPLICATED, BareNode, running


def test_an_append_that_waits_is_synced_at_once() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        node.append(partition)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 1

    running(story)


def test_what_nobody_waits_for_is_synced_in_time_and_not_before() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=REPLICATED)
        for second in range(9):
            node.append(partition)
            await asyncio.sleep(1)
            assert partition.log.synced_end == 0, second
        assert partition.log.durable_end == 9
        await asyncio.sleep(2)
        assert partition.log.synced_end == 9
        assert node.rounds.rounds == 1
        node.append(partition)
        await asyncio.sleep(11)
        assert partition.log.synced_end == 10

    running(story)


def test_whoever_waits_on_a_log_learns_that_its_late_sync_failed() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=REPLICATED)
        node.append(partition)
        node.disk.fail_next("sync", partition.log.path_of(partition.log.active, "log"))
        waiting = partition.committed.wait_for(99)
        await asyncio.sleep(12)
        assert waiting.exception() is not None

    running(story)


def test_a_topic_may_ask_for_a_sync_after_some_time() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=replace(REPLICATED, flush_ms=200))
        node.append(partition)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 0
        await asyncio.sleep(0.2)
        assert partition.log.synced_end == 1

    running(story)


def test_a_topic_may_ask_for_a_sync_after_some_records() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=replace(REPLICATED, flush_messages=3))
        for synced_end in (0, 0, 3, 3, 3, 6):
            node.append(partition)
            await asyncio.sleep(0.1)
            assert partition.log.synced_end == synced_end

    running(story)


def test_one_record_between_syncs_means_that_appends_wait() -> None:
    """With flush.messages=1 Kafka syncs inside the append."""

    async def story(node: BareNode) -> None:
        partition = await node.add(settings=replace(REPLICATED, flush_messages=1))
        node.append(partition)
        assert partition.log.durable_end == 0
        await asyncio.sleep(0.1)
        assert partition.log.durable_end == 1

    running(story)


def test_a_log_that_is_to_wait_from_now_on_is_synced_at_once() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=REPLICATED)
        node.append(partition)
        partition.log.adopt_settings(FSYNC)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 1

    running(story)


def test_a_clean_shutdown_covers_what_had_time() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=REPLICATED)
        node.append(partition)
        node.rounds.stop()
        await node.committing
        await node.directory.close()
        assert partition.log.synced_end == 1

    running(story)
