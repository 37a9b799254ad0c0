"""A fetch that waits: duration, wake-ups, and no leaks."""

import asyncio
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.control import ControlType
from penstock.server.fetching.long_poll import LongPoll
from penstock.server.fetching.reading import Reading
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from tests.unit.server.handlers.bare_node import (
    FSYNC,
    NONE,
    SMALL_SEGMENTS,
    BareNode,
    a_batch,
    fetched,
    finish,
    now_s,
    offsets,
    part,
    parts_of,
    running,
    to_fetch,
    transactional,
)

BATCH_BYTES = len(a_batch())


def later(node: BareNode, request: FetchRequest, version: int = 12) -> "asyncio.Task[FetchResponse]":
    async def fetch() -> FetchResponse:
        return await fetched(await node.begin(request, version), version)

    return asyncio.get_running_loop().create_task(fetch())


@pytest.mark.parametrize("version", range(4, 19))
def test_nothing_to_read_waits_for_the_whole_time(version: int) -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        began_s = now_s()
        response = await node.fetch(to_fetch(part(), max_wait_ms=500), version)
        assert now_s() - began_s == pytest.approx(0.5)
        assert parts_of(response)[0].records == b""

    running(story)


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (-5, 1), (500, 0), (500, -1)])
def test_nothing_to_wait_for_does_not_wait(max_wait_ms: int, min_bytes: int) -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        began_s = now_s()
        await node.fetch(to_fetch(part(), max_wait_ms=max_wait_ms, min_bytes=min_bytes))
        await node.fetch(to_fetch(max_wait_ms=500))
        assert now_s() == began_s

    running(story)


def test_new_records_wake_it_at_once() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        await node.add(index=1)
        began_s = now_s()
        task = later(node, to_fetch(part(0), part(1), max_wait_ms=60_000))
        await asyncio.sleep(3)
        assert node.watchers == 2
        node.append(partition)
        response = await task
        assert now_s() - began_s == pytest.approx(3)
        assert offsets(parts_of(response)[0]) == [0]
        assert node.watchers == 0

    running(story)


def test_it_is_woken_when_records_are_durable_not_when_they_are_written() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        task = later(node, to_fetch(part(0), max_wait_ms=60_000))
        await asyncio.sleep(1)
        began_s = now_s()
        node.append(partition)
        assert offsets(parts_of(await task)[0]) == [0]
        assert now_s() - began_s >= 0.25

    running(story, sync_s=0.25)


def test_min_bytes_are_counted_over_all_partitions() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(3)]
        began_s = now_s()
        request = to_fetch(*(part(index) for index in range(3)), max_wait_ms=60_000, min_bytes=BATCH_BYTES * 4)
        task = later(node, request)
        for n in range(4):
            await asyncio.sleep(1)
            assert not task.done()
            assert node.pins == 0, "a waiting fetch holds no slice"
            node.append(partitions[n % 3])
        found = parts_of(await task)
        assert now_s() - began_s == pytest.approx(4)
        assert sorted(offset for each in found.values() for offset in offsets(each)) == [0, 0, 0, 1]

    running(story)


def test_nothing_is_held_while_there_is_too_little() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        request = to_fetch(part(), max_wait_ms=2_000, min_bytes=1_000_000)
        unawaited = await node.begin(request, 12)
        assert node.pins == 0
        assert isinstance(unawaited, LongPoll), "it never begins, and nothing has to be put away"
        task = later(node, request)
        await asyncio.sleep(1)
        assert node.pins == 0
        assert offsets(parts_of(await task)[0]) == [0]

    running(story)


def test_too_few_bytes_are_given_when_the_time_is_up() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        began_s = now_s()
        task = later(node, to_fetch(part(), max_wait_ms=2_000, min_bytes=1_000_000))
        await asyncio.sleep(1)
        node.append(partition)
        assert offsets(parts_of(await task)[0]) == [0]
        assert now_s() - began_s == pytest.approx(2)

    running(story)


def test_more_than_the_limits_allow_is_enough() -> None:
    """Otherwise a fetch whose min_bytes exceeds its max_bytes would always wait."""

    async def story(node: BareNode) -> None:
        partition = await node.add()
        for _ in range(3):
            node.append(partition)
        began_s = now_s()
        await node.fetch(to_fetch(part(), max_wait_ms=5_000, min_bytes=10_000, max_bytes=BATCH_BYTES))
        assert now_s() == began_s

    running(story)


def test_the_end_of_an_old_segment_does_not_wait_for_more() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        for _ in range(5):
            node.append(partition)
        began_s = now_s()
        response = await node.fetch(to_fetch(part(0, 2), max_wait_ms=5_000, min_bytes=BATCH_BYTES * 3))
        assert now_s() == began_s
        assert offsets(parts_of(response)[0]) == [2]

    running(story)


def test_a_delayed_fetch_names_aborted_transactions() -> None:
    """R19, KAFKA-5376: the list belongs to the final read, not to the first one."""

    async def story(node: BareNode) -> None:
        partition = await node.add()
        task = later(node, to_fetch(part(), max_wait_ms=60_000, isolation_level=1))
        await asyncio.sleep(1)
        node.append(partition, **transactional(5))
        await asyncio.sleep(1)
        assert not task.done(), "an open transaction is nothing to read"
        node.end_transaction(partition, ControlType.ABORT, 5)
        found = parts_of(await task)[0]
        assert offsets(found) == [0, 1]
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(5, 0)]

    running(story)


def test_trouble_wakes_it() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(2)]
        task = later(node, to_fetch(part(0), max_wait_ms=60_000))
        other = later(node, to_fetch(part(1), max_wait_ms=60_000))
        await asyncio.sleep(1)
        partitions[0].log.take_offline("for a test")
        partitions[0].advance()
        node.partitions.remove(partitions[1])
        began_s = now_s()
        assert parts_of(await task)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert parts_of(await other)[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert now_s() == began_s

    running(story)


def test_a_new_leader_epoch_wakes_it() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(epoch=3)
        task = later(node, to_fetch(part(0, current_leader_epoch=3), max_wait_ms=60_000))
        await asyncio.sleep(1)
        partition.leader_epoch = 4
        partition.watchers.notify()
        assert parts_of(await task)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    running(story)


def test_a_client_that_goes_leaves_no_trace() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        task = later(node, to_fetch(part(), max_wait_ms=60_000))
        await asyncio.sleep(1)
        assert node.watchers == 1
        node.append(partition)
        task.cancel()  # woken and cancelled in one step
        await asyncio.sleep(0)
        assert node.watchers == 0
        assert node.pins == 0
        unawaited = await node.begin(to_fetch(part(0, 1), max_wait_ms=60_000), 12)
        assert isinstance(unawaited, LongPoll)
        assert node.watchers == 0, "it has not begun"

    running(story)


def test_what_comes_before_the_wait_begins_is_not_missed() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        answer = await node.begin(to_fetch(part(), max_wait_ms=60_000), 12)
        node.append(partition)
        began_s = now_s()
        response = await fetched(answer)
        assert offsets(parts_of(response)[0]) == [0]
        assert now_s() == began_s

    running(story)


def test_the_time_runs_from_the_arrival_of_the_request() -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        answer = await node.begin(to_fetch(part(), max_wait_ms=1_000), 12)
        await asyncio.sleep(5)
        began_s = now_s()
        await finish(answer)
        assert now_s() == began_s

    running(story)


def test_a_thousand_partitions_are_measured_only_where_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    looks: list[int] = []

    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(1_000)]
        measure, look = Reading.measure, Reading.look

        def counted(self: Reading, wanted: Any) -> int:
            measured.append(wanted.index)
            return measure(self, wanted)

        def counted_look(self: Reading) -> None:
            looks.append(1)
            look(self)

        monkeypatch.setattr(Reading, "measure", counted)
        monkeypatch.setattr(Reading, "look", counted_look)
        request = to_fetch(*(part(index) for index in range(1_000)), max_wait_ms=60_000, min_bytes=BATCH_BYTES * 10)
        task = later(node, request)
        for n in range(10):
            await asyncio.sleep(1)
            node.append(partitions[n * 7])
        response = await task
        assert sum(len(each.records or b"") for each in parts_of(response).values()) == BATCH_BYTES * 10

    running(story)
    assert measured == [n * 7 for n in range(10)]
    assert len(looks) == 2, "at the beginning and at the end"


def test_wakings_that_bring_nothing_do_not_spin() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        began_s = now_s()
        task = later(node, to_fetch(part(), max_wait_ms=1_000))
        for _ in range(20):
            await asyncio.sleep(0.01)
            partition.watchers.notify()
        assert parts_of(await task)[0].error_code == NONE
        assert now_s() - began_s == pytest.approx(1)

    running(story)


def test_two_waits_for_the_same_partition_are_both_told() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        tasks = [later(node, to_fetch(part(), max_wait_ms=60_000)) for _ in range(2)]
        await asyncio.sleep(1)
        assert node.watchers == 2
        node.append(partition)
        for task in tasks:
            assert offsets(parts_of(await task)[0]) == [0]

    running(story)


def test_what_comes_in_together_leaves_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    async def story(node: BareNode) -> None:
        partition = await node.add()
        look = Reading.look

        def counted(self: Reading) -> None:
            looks.append(1)
            look(self)

        monkeypatch.setattr(Reading, "look", counted)
        task = later(node, to_fetch(part(), max_wait_ms=60_000))
        await asyncio.sleep(1)
        for _ in range(5):
            node.append(partition)
        assert offsets(parts_of(await task)[0]) == [0, 1, 2, 3, 4]

    running(story)
    assert len(looks) == 2, "at the beginning and at the end"


@pytest.mark.parametrize("when", ["woken", "time is up"])
def test_a_mistake_of_ours_ends_the_wait_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        task = later(node, to_fetch(part(), max_wait_ms=2_000))
        await asyncio.sleep(1)

        def broken(self: Reading) -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(Reading, "look", broken)
        if when == "woken":
            node.append(partition)
        with pytest.raises(RuntimeError, match="planted"):
            await task
        assert node.watchers == 0
        assert node.pins == 0

    running(story)
