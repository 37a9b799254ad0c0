"""Transaction markers and other control records."""

import pytest

from penstock.model.errors import CorruptBatch
from penstock.records.control import (
    ControlType,
    EndTransactionMarker,
    marker_batch,
    read_control_key,
    read_control_type,
    read_marker,
    write_control_key,
    write_marker,
)
from penstock.records.header import BatchView
from penstock.records.rows import rows


@pytest.mark.parametrize("type_", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_ends_a_transaction(type_: ControlType) -> None:
    marker = EndTransactionMarker(type_, coordinator_epoch=17)
    batch = BatchView(marker_batch(marker, producer_id=5, producer_epoch=1, timestamp_ms=1_000, base_offset=8))
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.count, batch.base_sequence, batch.last_sequence, batch.last_offset) == (1, -1, -1, 8)
    assert read_control_type(batch) is type_
    (record,) = rows(batch, 1000)
    assert read_marker(record.key, record.value) == marker


def test_a_marker_is_written_as_kafka_writes_it() -> None:
    assert write_marker(EndTransactionMarker(ControlType.COMMIT, 3)) == (b"\0\0\0\1", b"\0\0\0\0\0\3")
    assert write_control_key(ControlType.KRAFT_VOTERS) == b"\0\0\0\6"


def test_fields_of_later_versions_are_passed_over() -> None:
    assert read_marker(b"\0\1\0\0more", b"\0\1\0\0\0\7more") == EndTransactionMarker(ControlType.ABORT, 7)
    assert read_control_key(b"\0\0\0\x63") is ControlType.UNKNOWN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\3"),
        (b"\0\0\0", b"\0\0\0\0\0\3"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\3"),
        (b"\0\0\0\2", b"\0\0\0\0\0\3"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\3"),
    ],
)
def test_what_is_no_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(key, value)


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        write_marker(EndTransactionMarker(ControlType.LEADER_CHANGE, 1))
