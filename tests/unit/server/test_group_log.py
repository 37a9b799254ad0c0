"""The log of a group shard is loaded in pieces, and of every offset only the latest commit."""

from collections.abc import Iterable

import pytest

from penstock.coordinator.events import ReadLog, TransactionEnded
from penstock.coordinator.placement import OFFSETS_TOPIC
from penstock.coordinator.ports import AppendLost, Now
from penstock.coordinator.records import GroupRecord, encode_record
from penstock.log.settings import LogSettings
from penstock.model.errors import MalformedMessage
from penstock.records.builder import BatchBuilder
from penstock.server.groups import group_log
from penstock.server.groups.group_log import LogReader, PartitionLog, batch_of
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Partitions
from penstock.wire.stored.consumer_groups import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from penstock.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from tests.unit.log.place import Place

EPOCH = 3


def a_place() -> Place:
    return Place(LogSettings(segment_bytes=100_000, retention_ms=None))


def committed(group: str, partition: int, offset: int | None) -> GroupRecord:
    key = OffsetCommitKey(group=group, topic="orders", partition=partition)
    if offset is None:
        return GroupRecord(key, None)
    return GroupRecord(key, OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp=5))


def group_epoch(epoch: int) -> GroupRecord:
    return GroupRecord(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=epoch))


def in_order(records: Iterable[GroupRecord | TransactionEnded]) -> list[GroupRecord | TransactionEnded]:
    return sorted(records, key=repr)


def read_all(place: Place) -> tuple[list[GroupRecord | TransactionEnded], int]:
    """Returns the records that a shard loads, and the number of pieces."""
    reader, end = LogReader(place.log), place.log.written_end
    found: list[GroupRecord | TransactionEnded] = []
    offset, pieces = place.log.start_offset, 0
    while offset < end or not pieces:
        part = reader.read(ReadLog(EPOCH, offset, end))
        assert (part.epoch, part.offset) == (EPOCH, offset)
        assert part.records or part.next_offset > offset or pieces == 0, "that is taken for the end"
        found += part.records
        offset, pieces = part.next_offset, pieces + 1
    return found, pieces


def test_of_an_offset_only_the_last_commit_is_told_and_of_groups_everything() -> None:
    place = a_place()
    for number in range(10):
        records = [committed("a", 0, number), group_epoch(number), committed("a", 1, 100 + number)]
        place.append(batch_of(records, 5))
    place.append(batch_of([committed("a", 1, None)], 5))
    told, _ = read_all(place)
    found = [each for each in told if isinstance(each, GroupRecord)]
    assert found == told
    assert [each for each in found if isinstance(each.key, ConsumerGroupMetadataKey)] == [*map(group_epoch, range(10))]
    commits = [each for each in found if isinstance(each.key, OffsetCommitKey)]
    assert in_order(commits) == in_order([committed("a", 0, 9), committed("a", 1, None)])


def test_many_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "COMMITS_PER_PIECE", 7)
    monkeypatch.setattr(group_log, "PIECE_BYTES", 500)
    place = a_place()
    for number in range(30):
        place.append(batch_of([committed("a", number, each) for each in range(3)], 5))
    found, pieces = read_all(place)
    assert in_order(found) == in_order(committed("a", each, 2) for each in range(30))
    assert pieces > 30 // 7


def test_commits_that_are_not_understood_end_nothing_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "COMMITS_PER_PIECE", 1)
    place = a_place()
    place.append(batch_of([committed("a", 0, 1)], 5))
    builder = BatchBuilder()
    for number in range(1, 9):
        key, _ = encode_record(committed("a", number, 1))
        builder.append(key, b"\x7f\xff of a later version", timestamp_ms=5)
    place.append(builder.build())
    assert read_all(place)[0] == [committed("a", 0, 1)]


def test_a_log_without_anything_ends_at_once() -> None:
    assert read_all(a_place()) == ([], 1)


def test_what_is_not_whole_is_told() -> None:
    place = a_place()
    key, value = encode_record(committed("a", 0, 1))
    assert value is not None
    builder = BatchBuilder()
    builder.append(key, value[:-1], timestamp_ms=5)
    place.append(builder.build())
    with pytest.raises(MalformedMessage):
        read_all(place)


def test_nothing_is_written_in_an_epoch_that_is_over() -> None:
    place, partitions = a_place(), Partitions()
    partition = Partition(OFFSETS_TOPIC, bytes(16), 0, place.log, EPOCH)
    partitions.add(partition)
    log = PartitionLog(partitions, 0)
    assert log.append(EPOCH, [committed("a", 0, 1)], Now(0, 5)) == 1
    partition.leader_epoch = EPOCH + 1
    with pytest.raises(AppendLost, match="not led here in epoch 3 any more"):
        log.append(EPOCH, [committed("a", 0, 2)], Now(0, 5))
    assert place.log.written_end == 1
    assert log.append(EPOCH + 1, [committed("a", 0, 3)], Now(0, 5)) == 2
