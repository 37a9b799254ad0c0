"""The view `latest`: a topic as a table of the last record of each key, without tombstones.

The rows of a partition are those that log compaction would eventually leave: a key lives in one partition, and its last
record decides. The records are read twice. The first pass keeps only the last offset of each key (some bytes for each
key, however many records and however large the values); the second pass returns the rows at those offsets. If a row
has disappeared by then, the view would lack a key, which is an error.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

NEEDED = ("key", "value", "offset")
MERGE_ROWS = 1_000_000


class Vanished(Exception):
    """Records were deleted or compacted between the two passes."""


def latest_rows(read: "Callable[[], Iterator[pa.RecordBatch]]", columns: Iterable[str]) -> "Iterator[pa.RecordBatch]":
    """The rows of one partition. `read` must return the same rows both times, with the NEEDED columns."""
    lasts = _Lasts()
    for batch in read():
        lasts.add(batch)
    offsets = lasts.offsets()
    wanted, count = list(columns), 0
    for batch in read():
        rows = _chosen(batch, offsets)
        count += rows.num_rows
        if rows.num_rows:
            yield rows.select(wanted)
    if count < len(offsets):
        raise Vanished(
            f"{len(offsets) - count} records were deleted while the latest of each key was read: read again."
        )


class _Lasts:
    """The last offset of each key, and whether its record has a value."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._limit = MERGE_ROWS

    def add(self, rows: "pa.RecordBatch") -> None:
        """Adds rows in offset order, after the rows added before."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_keyed = pc.is_valid(rows.column("key"))
        marks = pc.is_valid(rows.column("value"))
        table = pa.table([rows.column("key"), rows.column("offset"), marks], names=["key", "offset", "is_there"])
        self._tables.append(_reduced(table.filter(is_keyed)))
        self._rows += self._tables[-1].num_rows
        if self._rows > self._limit:
            self._merge()

    def offsets(self) -> "npt.NDArray[np.int64]":
        """The last offsets in ascending order, without those of tombstones."""
        import numpy as np

        if not self._tables:
            return np.empty(0, np.int64)
        self._merge()
        (table,) = self._tables
        return np.sort(table.filter(table["is_there"])["offset"].to_numpy())

    def _merge(self) -> None:
        import pyarrow as pa

        table = _reduced(pa.concat_tables(self._tables))
        self._tables, self._rows = [table], table.num_rows
        self._limit = max(MERGE_ROWS, 2 * self._rows)


def _reduced(table: "pa.Table") -> "pa.Table":
    """Keeps the last row of each key."""
    last = table.group_by("key", use_threads=False).aggregate([("offset", "last"), ("is_there", "last")])
    return last.rename_columns({"offset_last": "offset", "is_there_last": "is_there"}).select(table.column_names)


def _chosen(batch: "pa.RecordBatch", known: "npt.NDArray[np.int64]") -> "pa.RecordBatch":
    import numpy as np
    import pyarrow as pa

    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    places = np.searchsorted(known, offsets)
    mask = np.zeros(batch.num_rows, bool)
    inside = places < len(known)
    mask[inside] = known[places[inside]] == offsets[inside]
    return batch.filter(pa.array(mask))
