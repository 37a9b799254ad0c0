"""Compares a topic with its table: counts and sums of both sides, by partition and hour. Numbers only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.client.metadata import TopicPartition
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.differences import Difference, Span
from penstock.spark.lake.files import stored_rows, table_files
from penstock.spark.lake.fingerprints import Place, Tallies, Tally, merged, tallied

NOTHING = Tally(0, -1, -1, 0)
RESULT = pa.schema(
    [
        ("audited_at", pa.timestamp("us", tz="UTC")),
        ("audit", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("hour", pa.timestamp("us", tz="UTC")),
        ("log_rows", pa.int64()),
        ("table_rows", pa.int64()),
        ("log_first", pa.int64()),
        ("log_last", pa.int64()),
        ("table_first", pa.int64()),
        ("table_last", pa.int64()),
        ("log_sum", pa.int64()),
        ("table_sum", pa.int64()),
        ("is_equal", pa.bool_()),
    ]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Side:
    """The tallies of one side, and its bad records."""

    tallies: Tallies
    bad: int = 0


class Part(NamedTuple):
    """A partition in an audit."""

    partition: int
    hours: int
    differing_hours: int
    log_rows: int
    table_rows: int
    first: int | None
    """The lowest offset of the topic's records."""
    last: int | None


@dataclass(frozen=True)
class Verdict:
    """The result of an audit. There may be very many places, so they are sorted only once."""

    topic: str
    log: Tallies
    table: Tallies
    bad: int
    offsets: int
    differences: tuple[Difference, ...] = ()
    """The rows that differ, or the first of them."""
    has_more: bool = False
    """Whether more rows differ."""

    @cached_property
    def places(self) -> list[Place]:
        """All places of either side."""
        return sorted(self.log.keys() | self.table.keys())

    @cached_property
    def differing(self) -> list[Place]:
        """The places at which the sides differ."""
        return [each for each in self.places if self.log.get(each) != self.table.get(each)]

    def parts(self) -> list["Part"]:
        """The totals of each partition."""
        differing = set(self.differing)
        found: list[Part] = []
        for partition, places in groupby(self.places, key=attrgetter("partition")):
            hours = list(places)
            logs = [self.log[each] for each in hours if each in self.log]
            tables = [self.table[each] for each in hours if each in self.table]
            found.append(
                Part(
                    partition,
                    len(hours),
                    sum(each in differing for each in hours),
                    sum(each.rows for each in logs),
                    sum(each.rows for each in tables),
                    min((each.first for each in logs), default=None),
                    max((each.last for each in logs), default=None),
                )
            )
        return found

    @property
    def log_rows(self) -> int:
        """The readable records of the topic."""
        return sum(each.rows for each in self.log.values())

    @property
    def table_rows(self) -> int:
        """The rows of the table at the same offsets."""
        return sum(each.rows for each in self.table.values())

    @property
    def empty(self) -> int:
        """Offsets at which the topic has no record."""
        return self.offsets - self.log_rows - self.bad

    def named(self, differences: Iterable[Difference], *, at_most: int) -> "Verdict":
        """This verdict with the first of these differences."""
        found = sorted(differences)
        return replace(self, differences=tuple(found[:at_most]), has_more=len(found) > at_most)

    def line(self, name: str) -> str:
        """The verdict in one line."""
        rest = f"{self.bad:,} bad + {self.empty:,} without a record"
        text = f"{name}: {self.offsets:,} offsets = {self.log_rows:,} rows + {rest}"
        if not self.differing:
            return f"{text}; the table is the topic"
        shown = "; ".join(map(str, self.differences[:3]))
        more = f" and {'more' if self.has_more else len(self.differences) - 3}" if len(self.differences) > 3 else ""
        return f"{text}; {len(self.differing)} of {len(self.places)} hours DIFFER: {shown}{more}"

    def rows(self, name: str, now: datetime) -> pa.Table:
        """The rows for the table of audits."""
        pairs = [(each, self.log.get(each, NOTHING), self.table.get(each, NOTHING)) for each in self.places]
        columns = [
            [now] * len(pairs),
            [name] * len(pairs),
            [self.topic] * len(pairs),
            [place.partition for place, _, _ in pairs],
            [moment_of(place.hour) for place, _, _ in pairs],
            [log.rows for _, log, _ in pairs],
            [table.rows for _, _, table in pairs],
            [log.first for _, log, _ in pairs],
            [log.last for _, log, _ in pairs],
            [table.first for _, _, table in pairs],
            [table.last for _, _, table in pairs],
            [_signed(log.total) for _, log, _ in pairs],
            [_signed(table.total) for _, _, table in pairs],
            [log == table for _, log, table in pairs],
        ]
        return pa.table([pa.array(each, kind.type) for each, kind in zip(columns, RESULT, strict=True)], schema=RESULT)


def log_side(batches: Iterable[pa.RecordBatch], decoder: Decoder) -> Side:
    """The tallies that a part of the topic should have in the table. Runs in a task."""
    found: list[Tallies] = []
    bad = 0
    for batch in batches:
        good, letters = decoder.decode(batch)
        found.append(tallied(good))
        bad += len(letters)
    return Side(merged(found), bad)


def table_side(uri: str, schema: pa.Schema, paths: Iterable[str], spans: Mapping[TopicPartition, Span]) -> Side:
    """The tallies of the rows of these files at these offsets. Runs in a task."""
    filesystem, root = table_files(uri)
    found: list[Tallies] = []
    for path in paths:
        with filesystem.open_input_file(f"{root}/{path}") as source:
            batches = stored_rows(pq.ParquetFile(source), schema)
            found.append(merged(tallied(within(batch, spans)) for batch in batches))
    return Side(merged(found))


def within(batch: pa.RecordBatch, spans: Mapping[TopicPartition, Span]) -> pa.RecordBatch:
    """The rows at these offsets."""
    mask = pa.array([False] * batch.num_rows)
    for (topic, partition), (first, end) in spans.items():
        offsets = batch.column("offset")
        here = pc.and_(pc.equal(batch.column("partition"), partition), pc.equal(batch.column("topic"), topic))
        inside = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, end))
        mask = pc.or_(mask, pc.and_(here, inside))
    return batch.filter(mask)


def moment_of(hour: int) -> datetime:
    """The start of an hour; an hour outside the calendar counts as 1970."""
    try:
        return _EPOCH + timedelta(hours=hour)
    except OverflowError:
        return _EPOCH


def _signed(total: int) -> int:
    return total - (1 << 64) if total >= 1 << 63 else total
