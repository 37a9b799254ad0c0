"""Finds the rows that differ: missing, doubled, altered, or not in the topic.

Only partitions and hours whose sums differ are compared. Each side gives a mark for each of its rows there (partition,
offset, and the row's hash: some twenty bytes, however large the row is), and marks are grouped by offset.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.files import stored_rows, table_files
from penstock.spark.lake.fingerprints import Place, Tallies, hours_of, row_hashes

MARKS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("hash", pa.int64()),
        ("log", pa.int32()),
        ("table", pa.int32()),
    ]
)
MARKS_DDL = "partition INT, offset BIGINT, hash BIGINT, log INT, table INT"
MISSING, DOUBLED, ALTERED, STRANGE = "missing", "doubled", "altered", "not in the topic"
Span = tuple[int, int]
"""The first offset, and the end offset."""


class Difference(NamedTuple):
    """An offset at which the sides differ."""

    partition: int
    offset: int
    log_rows: int
    table_rows: int

    @property
    def kind(self) -> str:
        """The kind of difference."""
        if not self.table_rows:
            return MISSING
        if not self.log_rows:
            return STRANGE
        return DOUBLED if self.table_rows > 1 else ALTERED

    def __str__(self) -> str:
        times = f" (there {self.table_rows} times)" if self.table_rows > 1 else ""
        return f"{self.kind}: partition {self.partition}, offset {self.offset}{times}"


def spans_of(places: Iterable[Place], *sides: Tallies) -> dict[int, list[Span]]:
    """By partition, the offsets of either side at these places; adjacent and overlapping ranges are merged."""
    found: dict[int, list[Span]] = {}
    for place in sorted(places):
        for tallies in sides:
            if (tally := tallies.get(place)) is not None:
                found.setdefault(place.partition, []).append((tally.first, tally.last + 1))
    return {partition: _joined(spans) for partition, spans in found.items()}


def _joined(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined


def log_marks(
    batches: Iterable[pa.RecordBatch], decoder: Decoder, places: Collection[Place]
) -> Iterator[pa.RecordBatch]:
    """Marks of the rows that should be in the table. Runs in a task."""
    for batch in batches:
        good, _ = decoder.decode(batch)
        yield _marks(good, places, is_log=True)


def table_marks(
    uri: str, schema: pa.Schema, paths: Iterable[str], spans: Mapping[int, Collection[Span]], places: Collection[Place]
) -> Iterator[pa.RecordBatch]:
    """Marks of the rows in the table. Runs in a task; reads only the row groups that can have these offsets."""
    filesystem, root = table_files(uri)
    for path in paths:
        with filesystem.open_input_file(f"{root}/{path}") as source:
            file = pq.ParquetFile(source)
            groups = [number for number in range(file.num_row_groups) if _is_wanted(file, number, spans)]
            for batch in stored_rows(file, schema, groups):
                yield _marks(batch, places, is_log=False)


def _is_wanted(file: pq.ParquetFile, group: int, spans: Mapping[int, Collection[Span]]) -> bool:
    stats = file.metadata.row_group(group).column(file.schema.names.index("offset")).statistics
    if stats is None or not stats.has_min_max:
        return True
    return any(stats.min < end and stats.max >= first for each in spans.values() for first, end in each)


def _marks(rows: pa.RecordBatch, places: Collection[Place], *, is_log: bool) -> pa.RecordBatch:
    chosen = rows.filter(_is_among(rows, places))
    count = chosen.num_rows
    columns = [
        chosen.column("partition"),
        chosen.column("offset"),
        pa.array(row_hashes(chosen).view(np.int64)),
        pa.array(np.full(count, int(is_log), np.int32)),
        pa.array(np.full(count, int(not is_log), np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MARKS)


def _is_among(rows: pa.RecordBatch, places: Collection[Place]) -> pa.Array:
    hours = hours_of(rows)
    numbers = rows.column("partition").to_numpy(zero_copy_only=False)
    found = np.zeros(rows.num_rows, bool)
    for partition in pc.unique(rows.column("partition")).to_pylist():
        wanted = [place.hour for place in places if place.partition == partition]
        found |= (numbers == partition) & np.isin(hours, wanted)
    return pa.array(found)
