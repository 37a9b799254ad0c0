"""Files of rows: by day, of bounded size, with statistics for readers, and none left after an error."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.lake import files as files_module
from penstock.spark.lake.files import MIB, TableFiles, stored_rows
from penstock.spark.lake.table import DataFile
from tests.unit.spark.lake.frames import raw, us

NOON = us("2026-01-31T12:00:00")


def write(
    path: Path, batches: Iterable[pa.RecordBatch], is_by_day: bool = True, file_bytes: int = 512 * MIB
) -> list[DataFile]:
    with TableFiles(str(path), is_by_day=is_by_day, file_bytes=file_bytes) as files:
        for each in batches:
            files.add(each)
        return files.finish()


def offsets(path: Path, file: DataFile) -> list[int]:
    found: list[int] = pq.read_table(path / file.path, partitioning=None)["offset"].to_pylist()
    return found


def test_rows_lie_with_their_day(tmp_path: Path) -> None:
    stamps = [us("2026-01-30T23:59:59.999"), us("2026-01-31T00:00:00"), us("2026-01-30T00:00:00")]
    found = write(tmp_path, [raw([0, 1, 2], stamps), raw([3, 4], NOON)])
    assert {each.day: offsets(tmp_path, each) for each in found} == {"2026-01-30": [0, 2], "2026-01-31": [1, 3, 4]}
    assert all(each.path.startswith(f"day={each.day}/part-") for each in found)
    assert all(each.size_bytes == (tmp_path / each.path).stat().st_size for each in found)


def test_without_days_all_rows_lie_together(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [raw([0, 1], [us("2026-01-30"), NOON])], is_by_day=False)
    assert file.day is None
    assert "/" not in file.path
    assert offsets(tmp_path, file) == [0, 1]


def test_a_time_that_is_no_date_has_no_day(tmp_path: Path) -> None:
    """A producer sent microseconds as milliseconds: the year is 58051."""
    found = write(tmp_path, [raw([0, 1], [NOON, NOON * 1000])])
    by_day = {each.day: each for each in found}
    assert set(by_day) == {"2026-01-31", None}
    assert by_day[None].path.startswith("day=__HIVE_DEFAULT_PARTITION__/")
    assert set(json.loads(by_day[None].stats)["minValues"]) == {"partition", "offset"}


def test_no_time_at_all_is_a_moment_before_1970(tmp_path: Path) -> None:
    """Kafka's timestamp is -1 then."""
    (file,) = write(tmp_path, [raw([0], -1000)])
    assert file.day == "1969-12-31"


def test_readers_can_skip_files(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [raw([5, 6], [NOON, NOON + 1_234_000]), raw([3], NOON - 1000, partition=2)])
    stats = json.loads(file.stats)
    assert stats == {
        "numRecords": 3,
        "minValues": {"partition": 0, "offset": 3, "timestamp": "2026-01-31T11:59:59.999Z"},
        "maxValues": {"partition": 2, "offset": 6, "timestamp": "2026-01-31T12:00:01.234Z"},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }
    groups = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    named = {groups.column(index).path_in_schema: groups.column(index) for index in range(groups.num_columns)}
    assert named["offset"].statistics.max == 6
    assert named["value"].statistics is None
    assert named["headers.list.element.key"].has_dictionary_page


def test_every_column_comes_back(tmp_path: Path) -> None:
    batch = raw([0, 1], NOON, value=b"\x00\xff")
    (file,) = write(tmp_path, [batch])
    assert (
        pq.read_table(tmp_path / file.path, partitioning=None).to_pylist() == pa.Table.from_batches([batch]).to_pylist()
    )


def test_a_file_grows_until_it_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "ROW_GROUP_BYTES", 64 * 1024)
    batches = [raw(range(first, first + 100), NOON, value=os.urandom(1000)) for first in range(0, 2000, 100)]
    # Equal values compress well: a file holds many of them.
    found = write(tmp_path, batches, file_bytes=8 * 1024)
    assert len(found) > 2
    assert all(each.size_bytes >= 8 * 1024 for each in found[:-1])
    assert [offset for each in found for offset in offsets(tmp_path, each)] == list(range(2000))


def test_what_is_held_is_bounded_however_many_days_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "HELD_BYTES_MAX", 20_000)
    monkeypatch.setattr(files_module, "OPEN_MAX", 3)
    day_us = 86_400_000_000
    with TableFiles(str(tmp_path), is_by_day=True, file_bytes=512 * MIB) as files:
        for first in range(0, 1000, 100):
            files.add(
                raw(range(first, first + 100), [NOON + (offset % 10) * day_us for offset in range(100)], b"v" * 100)
            )
            assert len(files._open) <= 3
            assert sum(each.held_bytes for each in files._open.values()) < 20_000
        found = files.finish()
    assert sorted(offset for each in found for offset in offsets(tmp_path, each)) == list(range(1000))
    assert len({each.path for each in found}) == len(found)


def test_after_an_error_nothing_is_left_behind(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield raw([0], NOON)
        yield raw([1], us("2026-01-30"))
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        raise RuntimeError("the broker is lost")

    with pytest.raises(RuntimeError, match="lost"):
        write(tmp_path, batches())
    assert list(tmp_path.rglob("*.parquet")) == []


def test_two_attempts_never_write_to_one_file(tmp_path: Path) -> None:
    first, second = write(tmp_path, [raw([0], NOON)]), write(tmp_path, [raw([0], NOON)])
    assert first[0].path != second[0].path


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write(tmp_path, [raw([], NOON)]) == []
    assert write(tmp_path, [raw([], NOON)], is_by_day=False) == []


def test_rows_have_the_types_of_the_table_whoever_wrote_them(tmp_path: Path) -> None:
    """delta-rs writes strings as views when it changes rows; other writers use other widths and column orders."""
    batch = raw([1, 2], us("2026-01-31"))
    topics = batch.column("topic").cast(pa.string_view())
    kind = pa.timestamp("ns", tz="UTC")
    changed = pa.table({"topic": topics, "timestamp": batch.column("timestamp").cast(kind), "key": batch.column("key")})
    pq.write_table(changed, tmp_path / "part.parquet")
    schema = pa.schema([batch.schema.field(name) for name in ("key", "topic", "timestamp")])
    (found,) = stored_rows(pq.ParquetFile(tmp_path / "part.parquet"), schema)
    assert found == batch.select(["key", "topic", "timestamp"])
