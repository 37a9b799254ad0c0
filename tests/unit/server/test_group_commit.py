"""Rounds of group commit: who waits for a sync gets one at once, who does not gets one in time."""

import asyncio
from dataclasses import replace

from tests.unit.server.handlers.stand import FSYNC, REPLICATED, Stand, running


def test_an_append_that_waits_is_synced_at_once() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=FSYNC)
        stand.append(partition)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 1

    running(story)


def test_what_nobody_waits_for_is_synced_in_time_and_not_before() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=REPLICATED)
        for second in range(9):
            stand.append(partition)
            await asyncio.sleep(1)
            assert partition.log.synced_end == 0, second
        assert partition.log.durable_end == 9
        await asyncio.sleep(2)
        assert partition.log.synced_end == 9
        assert stand.rounds.rounds == 1
        stand.append(partition)
        await asyncio.sleep(11)
        assert partition.log.synced_end == 10

    running(story)


def test_whoever_waits_on_a_log_learns_that_its_late_sync_failed() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=REPLICATED)
        stand.append(partition)
        stand.disk.fail_next("sync", partition.log.path_of(partition.log.active, "log"))
        waiting = partition.committed.wait_for(99)
        await asyncio.sleep(12)
        assert waiting.exception() is not None

    running(story)


def test_a_topic_may_ask_for_a_sync_after_some_time() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=replace(REPLICATED, flush_ms=200))
        stand.append(partition)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 0
        await asyncio.sleep(0.2)
        assert partition.log.synced_end == 1

    running(story)


def test_a_topic_may_ask_for_a_sync_after_some_records() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=replace(REPLICATED, flush_messages=3))
        for synced_end in (0, 0, 3, 3, 3, 6):
            stand.append(partition)
            await asyncio.sleep(0.1)
            assert partition.log.synced_end == synced_end

    running(story)


def test_one_record_between_syncs_means_that_appends_wait() -> None:
    """Kafka syncs inside the append then."""

    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=replace(REPLICATED, flush_messages=1))
        stand.append(partition)
        assert partition.log.durable_end == 0
        await asyncio.sleep(0.1)
        assert partition.log.durable_end == 1

    running(story)


def test_a_log_that_is_to_wait_from_now_on_is_synced_at_once() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=REPLICATED)
        stand.append(partition)
        partition.log.adopt_settings(FSYNC)
        await asyncio.sleep(0.1)
        assert partition.log.synced_end == 1

    running(story)


def test_a_clean_shutdown_covers_what_had_time() -> None:
    async def story(stand: Stand) -> None:
        partition = await stand.add(settings=REPLICATED)
        stand.append(partition)
        stand.rounds.stop()
        await stand.committing
        await stand.directory.close()
        assert partition.log.synced_end == 1

    running(story)
