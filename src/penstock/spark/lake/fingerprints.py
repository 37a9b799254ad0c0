"""Summarizes rows so that they can be compared without a join: count, offset range, and sum of hashes.

Rows are counted by partition and hour. The sum is of 64-bit hashes of whole rows, so it does not depend on the order of
the rows, nor on their distribution over tasks; a missing, doubled or altered row changes it. It guards against
mistakes, not against malice.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.spark.lake.table import DAY

Hashes = npt.NDArray[np.uint64]
US_PER_HOUR = 3_600_000_000
NULL = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


class Place(NamedTuple):
    """A partition, and an hour since 1970."""

    partition: int
    hour: int


class Tally(NamedTuple):
    """The summary of the rows of one place."""

    rows: int
    first: int
    """The lowest offset."""
    last: int
    total: int
    """The sum of hashes, modulo 2^64."""

    def joined(self, other: "Tally") -> "Tally":
        """The sum of both."""
        total = (self.total + other.total) & _MASK
        return Tally(self.rows + other.rows, min(self.first, other.first), max(self.last, other.last), total)


Tallies = Mapping[Place, Tally]


def tallied(batch: pa.RecordBatch) -> dict[Place, Tally]:
    """The tallies of a batch."""
    if not batch.num_rows:
        return {}
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    hours = hours_of(batch)
    hashes = row_hashes(batch)
    order = np.lexsort((hours, partitions))
    keys = np.stack((partitions[order].astype(np.int64), hours[order]))
    starts = np.concatenate(([0], np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1))
    counts = np.diff(np.append(starts, batch.num_rows))
    firsts = np.minimum.reduceat(offsets[order], starts)
    lasts = np.maximum.reduceat(offsets[order], starts)
    totals = np.add.reduceat(hashes[order], starts)
    return {
        Place(int(keys[0, start]), int(keys[1, start])): Tally(int(count), int(first), int(last), int(total))
        for start, count, first, last, total in zip(starts, counts, firsts, lasts, totals, strict=True)
    }


def hours_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The hour of each row, since 1970."""
    stamps: npt.NDArray[np.int64] = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return stamps // US_PER_HOUR


def merged(many: Iterable[Tallies]) -> dict[Place, Tally]:
    """The sum of all."""
    found: dict[Place, Tally] = {}
    for each in many:
        for place, tally in each.items():
            known = found.get(place)
            found[place] = tally if known is None else known.joined(tally)
    return found


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A hash for each row, of all its columns but the day, which follows from the timestamp."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name != DAY:
            total += _mixed(_hashes(column) ^ _seed(name))
    return _mixed(total)


def _hashes(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_struct(kind):
        found = np.zeros(len(column), np.uint64)
        for index, each in enumerate(kind):
            found += _mixed(_hashes(column.field(index)) ^ _seed(each.name))
    elif pa.types.is_list(kind):
        found = _list_hashes(column)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _text_hashes(column)
    elif pa.types.is_decimal(kind):
        found = _text_hashes(column.cast(pa.string()))
    elif pa.types.is_floating(kind):
        found = _mixed(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64))
    else:
        wide = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        found = _mixed(wide.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64))
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), NULL, found)
    return found


def _text_hashes(column: pa.Array) -> Hashes:
    from pandas.util import hash_array

    values = column.cast(pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False)
    hashes: Hashes = hash_array(values, categorize=False)
    return hashes


def _list_hashes(column: pa.Array) -> Hashes:
    """Hashes of lists, whose elements are weighted by their position."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _hashes(column.flatten())
    ends = np.cumsum(lengths)
    starts = ends - lengths
    places = np.arange(len(elements), dtype=np.int64) - np.repeat(starts, lengths)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(_mixed(elements) * (2 * places + 1).astype(np.uint64))))
    return _mixed(sums[ends] - sums[starts] + lengths.astype(np.uint64))


def _mixed(numbers: Hashes) -> Hashes:
    """SplitMix64's last steps: every bit of the input affects every bit of the output."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _seed(name: str) -> np.uint64:
    from zlib import crc32

    return np.uint64(crc32(name.encode()) * 0x9E3779B1 & _MASK)
