"""The audit of a table against its topic finds every missing, duplicate or altered row, and its place."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client.metadata import TopicPartition
from penstock.spark.lake.audit_page import page
from penstock.spark.lake.audit_text import report
from penstock.spark.lake.auditing import Verdict, log_side, table_side
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.differences import Difference, log_marks, spans_of, table_marks
from penstock.spark.lake.fingerprints import Place, Tally, merged, row_hashes, tallied
from penstock.spark.lake.rows import table_schema
from penstock.spark.lake.writing import WritePlan, write
from penstock.spark.project.plan import Bad
from tests.unit.spark.lake.frames import raw, us

NOON = us("2026-01-31T12:00:00")
FIELDS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.date32()),
        ("p", pa.decimal128(9, 2)),
        ("t", pa.list_(pa.string())),
    ]
)
DECODER = Decoder("text", "json", FIELDS)
SCHEMA = table_schema(DECODER.key_type, DECODER.value_type, has_headers=True, is_by_day=False)
SPANS = {TopicPartition("orders", 0): (0, 100), TopicPartition("orders", 1): (0, 100)}


def topic(count: int = 100) -> list[pa.RecordBatch]:
    """Two partitions, a record a minute; every tenth record is unreadable."""
    stamps = [NOON + offset * 60_000_000 for offset in range(count)]
    values: list[bytes | None] = [
        b'{"n": %d, "x": 0.5, "d": "2026-01-31", "p": "1.25", "t": ["a", null]}' % offset if offset % 10 else b"{"
        for offset in range(count)
    ]
    values[5] = None
    return [raw(range(count), stamps, partition=partition, values=values) for partition in (0, 1)]


def written(path: Path, batches: list[pa.RecordBatch]) -> list[str]:
    plan = WritePlan(str(path), "orders_lake", True, 1 << 29, DECODER, Bad.SKIP)
    return [each.path for each in write(batches, plan).files]


def audited(path: Path, log: list[pa.RecordBatch], table: list[pa.RecordBatch]) -> Verdict:
    """Audits both sides in two tasks each; differing rows are joined as Spark does it."""
    files = written(path, table)
    sides = [log_side([each], DECODER) for each in log]
    halves = [table_side(str(path), SCHEMA, files[:1], SPANS), table_side(str(path), SCHEMA, files[1:], SPANS)]
    bad = sum(each.bad for each in sides)
    logs, tables = merged(each.tallies for each in sides), merged(each.tallies for each in halves)
    verdict = Verdict("orders", logs, tables, bad, 200)
    places = frozenset(verdict.differing)
    spans = spans_of(places, logs, tables)
    marks = [*log_marks(log, DECODER, places), *table_marks(str(path), SCHEMA, files, spans, places)]
    return verdict.named(brought_together(marks), at_most=100)


def brought_together(marks: list[pa.RecordBatch]) -> Iterator[Difference]:
    found: dict[tuple[int, int], list[dict[str, int]]] = {}
    for each in marks:
        for mark in each.to_pylist():
            found.setdefault((mark["partition"], mark["offset"]), []).append(mark)
    for (partition, offset), those in found.items():
        logs, tables = sum(each["log"] for each in those), sum(each["table"] for each in those)
        if (logs, tables) != (1, 1) or len({each["hash"] for each in those}) > 1:
            yield Difference(partition, offset, logs, tables)


def kinds(verdict: Verdict) -> list[tuple[str, int, int]]:
    return [(each.kind, each.partition, each.offset) for each in verdict.differences]


def test_a_table_that_is_the_topic(tmp_path: Path) -> None:
    found = audited(tmp_path, topic(), topic()[::-1])
    assert found.differing == []
    assert found.line("a") == "a: 200 offsets = 180 rows + 20 bad + 0 without a record; the table is the topic"
    rows = found.rows("a", datetime(2026, 2, 1, tzinfo=UTC)).to_pylist()
    assert len(rows) == 4, "two partitions, two hours"
    assert all(each["is_equal"] for each in rows)
    assert (rows[0]["log_rows"], rows[0]["log_first"], rows[0]["table_last"]) == (54, 1, 59)


def test_a_row_that_is_missing(tmp_path: Path) -> None:
    first, second = topic()
    found = audited(tmp_path, topic(), [first, second.slice(0, 71), second.slice(72)])
    assert [(each.partition, found.table[each].rows) for each in found.differing] == [(1, 35)]
    assert kinds(found) == [("missing", 1, 71)]
    assert found.line("a").endswith("1 of 4 hours DIFFER: missing: partition 1, offset 71")


def test_a_row_that_is_there_twice(tmp_path: Path) -> None:
    first, second = topic()
    found = audited(tmp_path, topic(), [first, second, second.slice(7, 1)])
    assert kinds(found) == [("doubled", 1, 7)]
    assert str(found.differences[0]) == "doubled: partition 1, offset 7 (there 2 times)"


@pytest.mark.parametrize("column", ["key", "value", "timestamp", "headers"])
def test_a_row_that_is_another(tmp_path: Path, column: str) -> None:
    first, second = topic()
    other = raw([7], NOON + 7 * 60_000_000 + 1000, partition=1, values=[b'{"n": 8}'])
    other = other.set_column(0, "key", pa.array([b"other"], pa.binary()))
    other = other.set_column(7, other.schema.field("headers"), pa.array([[]], other.schema.field("headers").type))
    index = second.schema.get_field_index(column)
    row = second.slice(7, 1).set_column(index, second.schema.field(column), other.column(column))
    found = audited(tmp_path, topic(), [first, second.slice(0, 7), row, second.slice(8)])
    assert kinds(found) == [("altered", 1, 7)]


def test_a_row_that_moved_to_another_hour_or_offset(tmp_path: Path) -> None:
    """Another timestamp alters one row, though two hours differ; another offset alters one and misses or adds one."""
    first, second = topic()
    later = second.slice(7, 1).set_column(
        second.schema.get_field_index("timestamp"),
        second.schema.field("timestamp"),
        second.slice(87, 1).column("timestamp"),
    )
    found = audited(tmp_path / "hour", topic(), [first, second.slice(0, 7), later, second.slice(8)])
    assert (len(found.differing), kinds(found)) == (2, [("altered", 1, 7)])
    index = second.schema.get_field_index("offset")
    moved = second.slice(99, 1).set_column(index, "offset", pa.array([98], pa.int64()))
    found = audited(tmp_path / "offset", topic(), [first, second.slice(0, 98), moved])
    assert kinds(found) == [("altered", 1, 98), ("missing", 1, 99)]
    ghost = second.slice(99, 1).set_column(index, "offset", pa.array([90], pa.int64()))
    assert kinds(audited(tmp_path / "ghost", topic(), [first, second, ghost])) == [("not in the topic", 1, 90)]


def test_a_report_names_hours_and_rows(tmp_path: Path) -> None:
    first, second = topic()
    found = audited(tmp_path, topic(), [first, second.slice(0, 71), second.slice(72)])
    text = report(found, "a")
    assert "        1              90              89       2       1" in text
    assert "        0  ██\n        1  █X\n" in text
    assert text.endswith("missing: partition 1, offset 71")
    html = page(found, "a<b", datetime(2026, 2, 1, tzinfo=UTC))
    assert "a&lt;b" in html
    assert "The table is not the topic: 1 missing, in 1 of 4 hours of partitions." in html
    assert html.count("#d1344b'/>") == html.count(">×</text>") == 1, "one red cell, crossed out"
    assert html.count("#c9ced6'/>") == 2, "rows of the topic, grey behind what the table has"
    assert "<td class='bad'>missing</td><td>1</td><td>71</td><td>not there</td>" in html
    assert "2026-01-31 12h UTC" in html


def test_what_the_table_has_too_much_is_red_in_the_chart(tmp_path: Path) -> None:
    first, second = topic()
    found = audited(tmp_path, topic(), [first, second, second.slice(7, 1)])
    html = page(found, "a", datetime(2026, 2, 1, tzinfo=UTC))
    assert "1 doubled, in 1 of 4 hours" in html
    assert "<td>2 times</td>" in html
    assert html.count("#d1344b'/>") == 2, "a cell, and the top of a bar"


def test_a_report_of_very_many_hours_and_partitions_stays_short(tmp_path: Path) -> None:
    tallies = {Place(partition, hour): Tally(1, hour, hour, 7) for partition in range(100) for hour in range(5000)}
    wrong = {**tallies, Place(77, 4999): Tally(1, 4999, 4999, 8)}
    found = Verdict("orders", tallies, wrong, 0, 500_000)
    text = report(found, "a")
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) < 120
    (line,) = [each for each in text.splitlines() if each.startswith("       77  █")]
    assert line.endswith("█X")


def test_neighbouring_hours_are_read_in_one_go() -> None:
    log = {Place(0, 1): Tally(5, 10, 19, 1), Place(0, 2): Tally(5, 20, 29, 1), Place(0, 9): Tally(5, 90, 99, 1)}
    table = {Place(0, 1): Tally(5, 5, 19, 1), Place(3, 1): Tally(1, 7, 7, 1)}
    spans = spans_of([*log, *table], log, table)
    assert spans == {0: [(5, 30), (90, 100)], 3: [(7, 8)]}


def test_only_the_offsets_that_were_asked_for(tmp_path: Path) -> None:
    files = written(tmp_path, topic())
    found = table_side(str(tmp_path), SCHEMA, files, {TopicPartition("orders", 1): (30, 50)})
    assert {place.partition for place in found.tallies} == {1}
    assert sum(each.rows for each in found.tallies.values()) == 18
    assert table_side(str(tmp_path), SCHEMA, files, {TopicPartition("others", 1): (30, 50)}).tallies == {}


def test_a_sum_does_not_depend_on_order_or_cuts() -> None:
    (batch, _) = topic()
    good, _ = DECODER.decode(batch)
    backwards = good.take(pa.array(range(good.num_rows - 1, -1, -1)))
    cut = merged([tallied(good.slice(0, 33)), tallied(good.slice(33, 40)), tallied(good.slice(73))])
    assert tallied(backwards) == tallied(good) == cut


def test_hashes_tell_apart_what_is_nearly_the_same() -> None:
    """Nulls and empty strings, lists and their parts, order in a list, equal values in other columns."""
    kind = pa.list_(pa.string())
    lists = pa.array([[], None, [""], ["a", "b"], ["b", "a"], ["ab"], [None]], kind)
    assert len(set(row_hashes(pa.record_batch({"x": lists})).tolist())) == 7
    texts = pa.array(["", None, "a", "A"])
    assert len(set(row_hashes(pa.record_batch({"x": texts})).tolist())) == 4
    one, two = pa.array(["a"]), pa.array(["b"])
    forth = row_hashes(pa.record_batch({"x": one, "y": two}))
    back = row_hashes(pa.record_batch({"x": two, "y": one}))
    assert forth[0] != back[0]
    sliced = lists.slice(3, 2)
    assert (
        row_hashes(pa.record_batch({"x": sliced})).tolist() == row_hashes(pa.record_batch({"x": lists})).tolist()[3:5]
    )
