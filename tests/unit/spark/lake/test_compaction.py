"""Small files are joined where no writer is active; rows stay the same, also with concurrent writers."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.lake import compaction
from penstock.spark.lake.commit import Batch, LakeTable
from penstock.spark.lake.compaction import Group, compact, groups_of, join
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.rows import table_schema
from penstock.spark.lake.table import DataFile, live_files, open_table
from penstock.spark.lake.writing import WritePlan, write
from penstock.spark.project.plan import Bad
from tests.unit.spark.lake.frames import raw, us

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
OLD, NEW = us("2026-01-30"), us("2026-01-31")
TARGET = 1 << 20
SCHEMA = table_schema(pa.binary(), pa.binary(), has_headers=True, is_by_day=True)
STORED = table_schema(pa.binary(), pa.binary(), has_headers=True, is_by_day=False)


def file(name: str, day: str | None, age_hours: float, size_bytes: int = 1000) -> DataFile:
    return DataFile(name, size_bytes, 1, day, "", NOW_MS - int(age_hours * HOUR_MS))


def names(*files: DataFile) -> list[list[str]]:
    groups = groups_of(files, now_ms=NOW_MS, quiet_ms=HOUR_MS, file_bytes=TARGET)
    return [[each.path for each in group.files] for group in groups]


def test_small_files_of_a_day_are_joined_in_the_order_of_their_age() -> None:
    assert names(*(file(f"f{age}", "2026-01-30", age) for age in (2, 5, 3, 4))) == [["f5", "f4", "f3", "f2"]]


def test_the_day_that_is_being_written_is_left_alone() -> None:
    yesterday = [file(f"y{age}", "2026-01-30", age) for age in range(10, 14)]
    today = [file(f"t{age}", "2026-01-31", age) for age in range(4)]
    assert names(*yesterday, *today, *(file(f"u{age}", "2026-01-31", age) for age in range(4, 9))) == [
        ["y13", "y12", "y11", "y10"]
    ]


def test_late_rows_do_not_keep_an_old_day_open() -> None:
    old = [file(f"o{age}", "2026-01-01", age) for age in (9, 8, 7, 6)]
    assert names(*old, file("late", "2026-01-01", 0.1), file("today", "2026-01-31", 0.1)) == [["o9", "o8", "o7", "o6"]]


def test_large_files_and_few_files_stay() -> None:
    large = [file(f"l{age}", "2026-01-30", age, TARGET) for age in range(2, 9)]
    few = [file(f"f{age}", "2026-01-29", age) for age in range(2, 5)]
    assert names(*large, *few) == []


def test_a_group_is_as_large_as_a_file_should_be() -> None:
    files = [file(f"f{age}", "2026-01-30", age, TARGET // 4) for age in range(2, 12)]
    assert [len(group) for group in names(*files)] == [4, 4]


# --- on a table


def write_batches(path: Path, count: int, stamp_us: int = OLD) -> LakeTable:
    """Builds a table of small files with ten rows each."""
    table = LakeTable(str(path), "orders_lake", SCHEMA, is_by_day=True)
    for number in range(count):
        append(table, path, number, stamp_us)
    return table


def append(table: LakeTable, path: Path, number: int, stamp_us: int = OLD) -> None:
    plan = WritePlan(str(path), "orders_lake", True, TARGET, Decoder(), Bad.FAIL)
    report = write([raw(range(number * 10, number * 10 + 10), stamp_us)], plan)
    ends = {"orders": {"0": number * 10 + 10}}
    assert table.commit("query", Batch(number, None, ends, report.files, report.rows, report.bad))


def rows_in(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = DeltaTable(path).to_pyarrow_table().sort_by("offset").to_pylist()
    return found


def run_compaction(path: Path, run: object = None) -> compaction.Joined:
    chosen = run or (lambda group: join(str(path), STORED, group, is_by_day=True))
    return compact(str(path), now_ms=10**15, quiet_ms=HOUR_MS, file_bytes=TARGET, run=chosen)  # type: ignore[arg-type]


def test_the_rows_are_the_same_afterwards(tmp_path: Path) -> None:
    write_batches(tmp_path, 5)
    before = rows_in(tmp_path)
    done = run_compaction(tmp_path)
    assert (done.before, done.after) == (5, 1)
    assert rows_in(tmp_path) == before
    opened = open_table(str(tmp_path))
    assert opened is not None
    assert len(live_files(opened)) == 1
    assert opened.history(1)[0]["isBlindAppend"] is False


def test_the_stream_writes_on_meanwhile(tmp_path: Path) -> None:
    table = write_batches(tmp_path, 5)

    def run(group: Group) -> list[DataFile]:
        append(table, tmp_path, 5)
        return join(str(tmp_path), STORED, group, is_by_day=True)

    assert run_compaction(tmp_path, run).before == 5
    assert [each["offset"] for each in rows_in(tmp_path)] == list(range(60))
    append(table, tmp_path, 6)
    assert len(rows_in(tmp_path)) == 70


def test_whoever_comes_second_gives_way(tmp_path: Path) -> None:
    """Two runners join the same files: one of them discards its file."""
    write_batches(tmp_path, 5)

    def run(group: Group) -> list[DataFile]:
        assert run_compaction(tmp_path).before == 5
        return join(str(tmp_path), STORED, group, is_by_day=True)

    before = rows_in(tmp_path)
    assert run_compaction(tmp_path, run).before == 0
    assert rows_in(tmp_path) == before
    assert len(list(tmp_path.rglob("*.parquet"))) == 6, "five old ones, for whoever reads them now, and the joined one"


def test_rows_that_were_deleted_meanwhile_do_not_come_back(tmp_path: Path) -> None:
    write_batches(tmp_path, 5)

    def run(group: Group) -> list[DataFile]:
        made = join(str(tmp_path), STORED, group, is_by_day=True)
        DeltaTable(tmp_path).delete("offset = 7")
        return made

    assert run_compaction(tmp_path, run).before == 0
    assert 7 not in [each["offset"] for each in rows_in(tmp_path)]


def test_it_stops_when_it_is_not_welcome(tmp_path: Path) -> None:
    write_batches(tmp_path, 5)
    done = compact(
        str(tmp_path),
        now_ms=10**15,
        quiet_ms=HOUR_MS,
        file_bytes=TARGET,
        run=lambda group: join(str(tmp_path), STORED, group, is_by_day=True),
        may_go_on=lambda: False,
    )
    assert done.before == 0


def test_a_file_that_has_lost_rows_is_not_joined(tmp_path: Path) -> None:
    write_batches(tmp_path, 5)
    opened = open_table(str(tmp_path))
    assert opened is not None
    first, second, *_ = live_files(opened)
    (tmp_path / first.path).write_bytes((tmp_path / second.path).read_bytes())
    group = Group("2026-01-30", (first, DataFile(second.path, 1, 11, second.day, "", 0)))
    with pytest.raises(ValueError, match="20 rows came out of files that have 21"):
        join(str(tmp_path), STORED, group, is_by_day=True)


def test_no_table_no_work(tmp_path: Path) -> None:
    assert run_compaction(tmp_path / "nothing").before == 0


def test_what_is_joined_counts_as_old_as_its_rows(tmp_path: Path) -> None:
    """Otherwise a round would delay the next one."""
    write_batches(tmp_path, 5)
    opened = open_table(str(tmp_path))
    assert opened is not None
    newest_ms = max(each.written_ms for each in live_files(opened))
    run_compaction(tmp_path)
    opened = open_table(str(tmp_path))
    assert opened is not None
    assert [each.written_ms for each in live_files(opened)] == [newest_ms]
