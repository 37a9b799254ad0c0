"""The loop that seals segments, applies retention and expires producers: due work only, in small steps."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.log import upkeep as log_upkeep
from penstock.log.log import Log
from penstock.model.errors import DiskFull
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.server.settings import UpkeepSettings
from tests.unit.server.handlers.bare_node import REPLICATED, BareNode, a_batch, running

BATCH_BYTES = len(a_batch())
SMALL = replace(REPLICATED, segment_bytes=BATCH_BYTES * 2)


def upkeep_of(node: BareNode, *, on_trouble: Any = None, **settings: int) -> Upkeep:
    options: dict[str, Any] = {"on_trouble": on_trouble} if on_trouble else {}
    return Upkeep(node.directory, node.partitions, node.clock, asyncio.Lock(), UpkeepSettings(**settings), **options)


def test_segments_are_sealed_soon() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL)
        task = asyncio.get_running_loop().create_task(upkeep_of(node).run())
        await asyncio.sleep(0.1)
        for _ in range(9):
            node.append(partition)
        assert partition.log.settled_segments == 0
        await asyncio.sleep(2)
        assert partition.log.settled_segments == len(partition.log.segments) - 1 == 4
        task.cancel()

    running(story)


def test_retention_and_idle_producers_have_their_own_pace() -> None:
    async def story(node: BareNode) -> None:
        settings = replace(SMALL, retention_ms=100_000, producer_expiration_ms=50_000)
        partition = await node.add(settings=settings)
        for n in range(4):
            node.append(partition, producer_id=1, producer_epoch=0, base_sequence=n, timestamp_ms=node.clock.wall_ms())
        task = asyncio.get_running_loop().create_task(upkeep_of(node).run())
        await asyncio.sleep(290)
        assert (partition.log.start_offset, len(partition.log.producers)) == (0, 1)
        await asyncio.sleep(20)
        assert (partition.log.start_offset, len(partition.log.producers)) == (4, 0)
        task.cancel()

    running(story)


def test_a_turn_does_only_so_much() -> None:
    async def story(node: BareNode) -> None:
        for index in range(20):
            partition = await node.add(index=index, settings=SMALL)
            for _ in range(3):
                node.append(partition)
        upkeep = upkeep_of(node, logs_per_turn_max=6, looks_per_turn_max=100)
        assert [await upkeep.turn() for _ in range(5)] == [6, 6, 6, 2, 0]
        upkeep = upkeep_of(node, logs_per_turn_max=6, looks_per_turn_max=15)
        node.append(partition)
        node.append(partition)
        assert [await upkeep.turn() for _ in range(3)] == [0, 1, 0]

    running(story)


def test_logs_that_nobody_writes_to_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    has_work = Upkeep._has_work

    def counted(self: Upkeep, log: Log) -> bool:
        looked.append(log.path)
        return has_work(self, log)

    monkeypatch.setattr(Upkeep, "_has_work", counted)

    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index, settings=SMALL) for index in range(5)]
        task = asyncio.get_running_loop().create_task(upkeep_of(node).run())
        await asyncio.sleep(2.5)
        looked.clear()
        await asyncio.sleep(5)
        assert looked == []
        for _ in range(3):
            node.append(partitions[3])
        await asyncio.sleep(5)
        assert looked == ["logs/t-3"]
        assert partitions[3].log.settled_segments == 1
        task.cancel()

    running(story)


def test_what_could_not_be_sealed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL)
        settle = log_upkeep.settle

        async def no_room(*_: Any) -> None:
            raise DiskFull("the disk is full")

        monkeypatch.setattr(log_upkeep, "settle", no_room)
        task = asyncio.get_running_loop().create_task(upkeep_of(node).run())
        for _ in range(3):
            node.append(partition)
        await asyncio.sleep(4)
        assert partition.log.settled_segments == 0
        monkeypatch.setattr(log_upkeep, "settle", settle)
        await asyncio.sleep(2)
        assert partition.log.settled_segments == 1
        task.cancel()

    running(story)


def test_a_log_in_trouble_is_reported_and_the_others_go_on() -> None:
    troubles: list[tuple[str, str]] = []

    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index, settings=SMALL) for index in range(3)]
        for partition in partitions:
            for _ in range(3):
                node.append(partition)
        upkeep = upkeep_of(node, on_trouble=lambda log, error: troubles.append((log.path, str(error))))
        log = partitions[1].log
        node.disk.fail_next("sync", log.path_of(log.segments[0], "index"))
        waiting = partitions[1].committed.wait_for(99)
        await upkeep.turn()
        assert [partition.log.settled_segments for partition in partitions] == [1, 0, 1]
        assert log.offline_reason is not None
        assert waiting.exception() is not None, "whoever waits on it has been told"
        assert await upkeep.turn() == 0

    running(story)
    assert [path for path, _ in troubles] == ["logs/t-1"]


def test_deletion_and_the_loop_take_turns_on_a_log() -> None:
    at_work: list[str] = []

    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL)
        for _ in range(9):
            node.append(partition)
        upkeep = upkeep_of(node)
        settle, delete_before = log_upkeep.settle, log_upkeep.delete_before

        async def watched(log: Log, disk: Any, reserve: Any = None) -> None:
            at_work.append("seals")
            await settle(log, disk, reserve)
            at_work.append("sealed")

        async def watched_delete(log: Log, disk: Any, offset: int) -> None:
            at_work.append("deletes")
            await delete_before(log, disk, offset)
            at_work.append("deleted")

        log_upkeep.settle = watched
        log_upkeep.delete_before = watched_delete
        try:
            turn = asyncio.get_running_loop().create_task(upkeep.turn())
            await asyncio.sleep(0.01)
            await upkeep.delete_before(partition.log, 4)
            await turn
        finally:
            log_upkeep.settle, log_upkeep.delete_before = settle, delete_before
        assert partition.log.start_offset == 4

    running(story, sync_s=0.05)
    assert at_work[:3] == ["seals", "sealed", "deletes"]


def test_holding_the_lock_it_can_be_cancelled_between_logs() -> None:
    async def story(node: BareNode) -> None:
        for index in range(5):
            partition = await node.add(index=index, settings=SMALL)
            for _ in range(5):
                node.append(partition)
        upkeep = upkeep_of(node)
        task = asyncio.get_running_loop().create_task(upkeep.run())
        await asyncio.sleep(0.12)
        async with upkeep.lock:
            task.cancel()
        await asyncio.sleep(0)
        assert task.done()
        settled = [log.settled_segments for log in node.directory.logs.values()]
        assert set(settled) == {0, 2}, "each is sealed in full or not at all"

    running(story, sync_s=0.01)
