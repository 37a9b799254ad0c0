"""Fetch: returned records, their upper bound, size limits, and every error."""

from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.control import ControlType
from penstock.server.fetching.reading import ABORTED_UNTRIMMED_MAX
from penstock.server.partitions.partitions import Leader
from penstock.wire.messages.fetch import FetchRequest, FetchTopic
from tests.unit.server.handlers.bare_node import (
    BATCH_BYTES,
    ENDPOINTS,
    FSYNC,
    NONE,
    SMALL_SEGMENTS,
    BareNode,
    fetched,
    offsets,
    part,
    parts_of,
    running,
    to_fetch,
    topic_id,
    transactional,
)

VERSIONS = range(4, 19)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_every_version_reads_from_an_offset_on(version: int, isolation_level: int) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        for _ in range(4):
            node.append(partition, 2)
        response = await node.fetch(to_fetch(part(0, 3), isolation_level=isolation_level), version)
        assert (response.error_code, response.session_id, response.throttle_time_ms) == (NONE, 0, 0)
        (topic,) = response.responses
        assert topic.topic == ("t" if version < 13 else "")
        assert topic.topic_id == (topic_id("t") if version >= 13 else bytes(16))
        (found,) = topic.partitions
        assert offsets(found) == [2, 4, 6]
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (NONE, 8, 8)
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert found.aborted_transactions == (None if isolation_level == 0 else ())
        assert found.preferred_read_replica == -1

    running(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_errors(version: int) -> None:
    async def story(node: BareNode) -> None:
        for index in range(5):
            partition = await node.add(index=index)
            node.append(partition)
            if index == 2:
                partition.log.take_offline("for a test")
        node.leaders_elsewhere[5] = Leader(2, 8, ENDPOINTS)
        epochs = {3: 2, 4: 4} if version >= 9 else {}
        parts = [part(index, 7 if index == 1 else 0, current_leader_epoch=epochs.get(index, 3)) for index in range(7)]
        response = await node.fetch(to_fetch(*parts, max_wait_ms=1000), version)
        found = parts_of(response)
        storage = ErrorCode.NOT_LEADER_OR_FOLLOWER if version <= 5 else ErrorCode.KAFKA_STORAGE_ERROR
        assert {index: each.error_code for index, each in found.items()} == {
            0: NONE,
            1: ErrorCode.OFFSET_OUT_OF_RANGE,
            2: storage,
            3: ErrorCode.FENCED_LEADER_EPOCH if version >= 9 else NONE,
            4: ErrorCode.UNKNOWN_LEADER_EPOCH if version >= 9 else NONE,
            5: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            6: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (found[1].high_watermark, found[1].log_start_offset) == (1, 0 if version >= 5 else -1)
        assert found[6].high_watermark == -1
        assert found[2].records == b""
        leader = (found[5].current_leader.leader_id, found[5].current_leader.leader_epoch)
        assert leader == ((2, 8) if version >= 16 else (-1, -1))
        assert [endpoint.host for endpoint in response.node_endpoints] == (["b"] if version >= 16 else [])

    running(story)


def test_an_unknown_topic_is_told_by_its_kind() -> None:
    async def story(node: BareNode) -> None:
        request = to_fetch(part(), topic="nobody", max_wait_ms=10_000)
        assert parts_of(await node.fetch(request, 12))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert parts_of(await node.fetch(request, 13))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    running(story)


@pytest.mark.parametrize("version", [each for each in VERSIONS if each < 15])
def test_followers_that_do_not_name_their_epoch_are_refused(version: int) -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        response = await node.fetch(to_fetch(part(), replica_id=2), version)
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert response.error_code == (refused if version >= 7 else NONE)
        assert {each.error_code for each in parts_of(response).values()} == (set() if version >= 13 else {refused})

    running(story)


def test_consumers_see_nothing_beyond_the_high_watermark_and_beyond_the_end_is_an_error() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=FSYNC)
        for _ in range(3):
            node.append(partition)
        assert (partition.log.high_watermark, partition.log.written_end) == (0, 3)
        for offset in (0, 2, 3):
            found = parts_of(await node.fetch(to_fetch(part(0, offset))))[0]
            assert (found.error_code, found.records, found.high_watermark) == (NONE, b"", 0)
        assert parts_of(await node.fetch(to_fetch(part(0, 4))))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    running(story, sync_s=1.0)


def test_an_offset_before_the_start_is_an_error_that_names_the_start() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        for _ in range(3):
            node.append(partition)
        await node.upkeep.delete_before(partition.log, 2)
        found = parts_of(await node.fetch(to_fetch(part(0, 1))))[0]
        assert (found.error_code, found.log_start_offset, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2, 3)

    running(story)


def test_read_committed_stops_at_open_transactions_and_names_aborted_ones() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        node.append(partition, **transactional(5))
        node.append(partition)
        found = parts_of(await node.fetch(to_fetch(part(), isolation_level=1)))[0]
        assert (offsets(found), found.last_stable_offset, found.high_watermark) == ([0], 1, 3)
        assert offsets(parts_of(await node.fetch(to_fetch(part())))[0]) == [0, 1, 2]
        assert parts_of(await node.fetch(to_fetch(part(0, 1), isolation_level=1)))[0].records == b""
        node.end_transaction(partition, ControlType.ABORT, 5)
        found = parts_of(await node.fetch(to_fetch(part(), isolation_level=1)))[0]
        assert offsets(found) == [0, 1, 2, 3]
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(5, 1)]
        found = parts_of(await node.fetch(to_fetch(part())))[0]
        assert found.aborted_transactions is None

    running(story)


def test_aborted_transactions_are_those_of_the_slice_not_of_the_whole_log() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        count = ABORTED_UNTRIMMED_MAX * 2
        for n in range(count):
            node.append(partition, **transactional(n))
            node.end_transaction(partition, ControlType.ABORT, n)
        first = partition.log.read(0, 1, limit=1)
        assert first is not None
        size = len(first)
        first.release()
        found = parts_of(await node.fetch(to_fetch(part(0, 0, partition_max_bytes=size * 4), isolation_level=1)))[0]
        named = [each.first_offset for each in found.aborted_transactions or ()]
        assert {offset for offset in offsets(found) if offset % 2 == 0} <= set(named)
        assert len(named) < 6
        everything = parts_of(await node.fetch(to_fetch(part(), isolation_level=1)))[0]
        assert len(everything.aborted_transactions or ()) == count

    running(story)


def test_aborted_transactions_are_found_across_segments() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        node.append(partition, **transactional(5))
        for _ in range(8):
            node.append(partition)
        node.end_transaction(partition, ControlType.ABORT, 5)
        await node.upkeep.turn()
        assert partition.log.settled_segments > 1
        found = parts_of(await node.fetch(to_fetch(part(), isolation_level=1)))[0]
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(5, 0)]

    running(story)


def test_the_first_batch_is_whole_and_no_other_exceeds_the_limits() -> None:
    async def story(node: BareNode) -> None:
        for index in range(3):
            partition = await node.add(index=index)
            for _ in range(4):
                node.append(partition)
        asked = [part(0, 4), part(1), part(2)]
        sizes = [
            len(each.records or b"") for each in parts_of(await node.fetch(to_fetch(*asked, max_bytes=1))).values()
        ]
        assert sizes == [0, BATCH_BYTES, 0]
        limit = BATCH_BYTES * 5
        sizes = [
            len(each.records or b"") for each in parts_of(await node.fetch(to_fetch(*asked, max_bytes=limit))).values()
        ]
        assert sizes == [0, BATCH_BYTES * 4, BATCH_BYTES]
        narrow = [part(index, 0, partition_max_bytes=BATCH_BYTES + 5) for index in range(3)]
        sizes = [len(each.records or b"") for each in parts_of(await node.fetch(to_fetch(*narrow))).values()]
        assert sizes == [BATCH_BYTES + 5] * 3
        tiny = [part(index, 0, partition_max_bytes=1) for index in range(3)]
        sizes = [len(each.records or b"") for each in parts_of(await node.fetch(to_fetch(*tiny))).values()]
        assert sizes == [BATCH_BYTES, 0, 0]
        sizes = [
            len(each.records or b"") for each in parts_of(await node.fetch(to_fetch(part(), max_bytes=-1))).values()
        ]
        assert sizes == [BATCH_BYTES]

    running(story)


def test_with_no_bytes_left_an_offset_is_still_judged() -> None:
    async def story(node: BareNode) -> None:
        for index in range(3):
            node.append(await node.add(index=index))
        found = parts_of(await node.fetch(to_fetch(part(0), part(1), part(2, 9), max_bytes=1)))
        assert [each.error_code for each in found.values()] == [NONE, NONE, ErrorCode.OFFSET_OUT_OF_RANGE]
        assert found[1].high_watermark == 1

    running(story)


def test_a_reader_that_has_diverged_learns_where() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(epoch=3)
        for _ in range(3):
            node.append(partition)
        await node.directory.begin_epoch(partition.log, 6)
        partition.leader_epoch = 6
        node.append(partition)

        async def ask(offset: int, epoch: int) -> Any:
            return parts_of(await node.fetch(to_fetch(part(0, offset, last_fetched_epoch=epoch), max_wait_ms=9_000)))[0]

        for offset, epoch in ((3, 3), (2, 3), (4, 6)):
            found = await ask(offset, epoch) if offset < 4 else None
            assert found is None or (found.error_code, found.diverging_epoch.epoch) == (NONE, -1)
        found = await ask(4, 3)
        assert (found.error_code, found.records) == (NONE, b"")
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (3, 3)
        found = await ask(2, 5)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (3, 3)
        assert (await ask(2, 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    running(story)


def test_a_damaged_file_is_an_error_of_its_partition_alone() -> None:
    async def story(node: BareNode) -> None:
        node.append(await node.add(index=0))
        node.append(await node.add(index=1))
        node.disk.fail_next("read")
        found = parts_of(await node.fetch(to_fetch(part(0), part(1))))
        assert [each.error_code for each in found.values()] == [ErrorCode.KAFKA_STORAGE_ERROR, NONE]
        node.disk.fail_next("read", count=1)

    running(story)


def test_a_failure_between_the_slice_and_its_aborted_transactions_leaves_no_pin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)

        def fail(*_: object) -> list[Any]:
            raise OSError(5, "for a test")

        monkeypatch.setattr(partition.log, "aborted_between", fail)
        found = parts_of(await node.fetch(to_fetch(part(), isolation_level=1)))[0]
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    running(story)


def test_topics_keep_the_order_of_the_request() -> None:
    async def story(node: BareNode) -> None:
        for topic in ("b", "a"):
            for index in range(2):
                node.append(await node.add(topic, index))
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic=name, partitions=[part(1), part(0)]) for name in ("b", "a")],
        )
        response = await node.fetch(request)
        assert [(topic.topic, [each.partition_index for each in topic.partitions]) for topic in response.responses] == [
            ("b", [1, 0]),
            ("a", [1, 0]),
        ]

    running(story)


def test_reading_goes_on_across_segments() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        for _ in range(20):
            node.append(partition)
        await node.upkeep.turn()
        seen: list[int] = []
        while len(seen) < 20:
            found = offsets(parts_of(await node.fetch(to_fetch(part(0, len(seen)))))[0])
            assert found
            seen += found
        assert seen == list(range(20))

    running(story)


def test_a_closed_segment_is_sent_to_the_end_although_retention_removed_it() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(settings=SMALL_SEGMENTS)
        for _ in range(9):
            node.append(partition)
        answer = await node.begin(to_fetch(part(0, 0, partition_max_bytes=BATCH_BYTES)), 12)
        await node.upkeep.delete_before(partition.log, 9)
        assert offsets(parts_of(await fetched(answer))[0]) == [0]

    running(story)
