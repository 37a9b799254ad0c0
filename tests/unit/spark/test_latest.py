"""The latest value of each key, unless deleted, as in a dictionary."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.spark import latest as latest_module
from penstock.spark.latest import Vanished, latest_rows

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
Record = tuple[bytes | None, bytes | None, int]


def batch(*records: Record) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in records], SCHEMA)


def view(*batches: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    rows = latest_rows(lambda: iter(batches), ["key", "value"])
    return sorted((row["key"], row["value"]) for each in rows for row in each.to_pylist())


def test_the_last_value_remains() -> None:
    assert view(batch((b"a", b"1", 0), (b"b", b"1", 1)), batch((b"a", b"2", 5))) == [
        (b"a", b"2"),
        (b"b", b"1"),
    ]


def test_a_tombstone_takes_a_row_away_and_a_later_value_brings_it_back() -> None:
    gone = batch((b"a", b"1", 0), (b"a", None, 1))
    assert view(gone) == []
    assert view(gone, batch((b"a", b"2", 2))) == [(b"a", b"2")]


def test_a_row_that_vanished_between_the_readings_is_told() -> None:
    """Otherwise the view would silently lack a key."""
    readings = iter([[batch((b"a", b"1", 0), (b"b", b"1", 1))], [batch((b"b", b"1", 1))]])
    with pytest.raises(Vanished, match="1 records were deleted"):
        list(latest_rows(lambda: iter(next(readings)), ["key"]))


def test_who_has_no_key_has_no_row() -> None:
    assert view(batch((None, b"1", 0), (b"", b"2", 1))) == [(b"", b"2")]


def test_nothing_of_nothing() -> None:
    assert view() == []
    assert view(batch()) == []


def test_as_a_dictionary_would_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many records of few keys, in batches of any size, merged often."""
    monkeypatch.setattr(latest_module, "MERGE_ROWS", 50)
    chance = random.Random(7)
    expected: dict[bytes, bytes] = {}
    records: list[Record] = []
    end = 0
    for number in range(5000):
        key = b"%d" % chance.randrange(300)
        value = None if chance.random() < 0.3 else b"%d" % number
        records.append((key, value, end))
        end += chance.randrange(1, 4)
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        while first < len(records):
            count = chance.randrange(1, 200)
            yield batch(*records[first : first + count])
            first += count

    rows = [row for each in latest_rows(batches, ["value", "key"]) for row in each.to_pylist()]
    assert len(rows) == len(expected)
    assert {row["key"]: row["value"] for row in rows} == expected
