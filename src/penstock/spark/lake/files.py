"""Writes Parquet files in a table's directory: rows in, descriptions out.

File names are never reused: a file left behind by a task that fails, is repeated or runs twice is an orphan that no
commit names, and never a duplicate. Rows are held until they make a row group, a file grows until it is large enough,
and both have bounds, so that a task needs the same memory for a megabyte and for a terabyte.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from penstock.spark.lake.rows import by_day
from penstock.spark.lake.table import DAY, DataFile

MIB = 1024 * 1024
ROW_GROUP_BYTES = 32 * MIB
"""The size of the rows in memory; on disk it is less."""
HELD_BYTES_MAX = 96 * MIB
BATCH_ROWS = 65_536
OPEN_MAX = 16
COMPRESSION = "zstd"
COUNTED = ("partition", "offset", "timestamp")
"""Columns whose minimum and maximum readers use to skip files."""
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_files(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system and the directory of a table."""
    filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    return filesystem, path.rstrip("/")


def stored_rows(
    file: pq.ParquetFile, schema: pa.Schema, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of a file, of all its row groups or some, cast to the types of the table."""
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups):
        yield batch.select(schema.names).cast(schema)


def delete_file(filesystem: pyarrow.fs.FileSystem, path: str) -> None:
    """Deletes a file that no commit names; if that fails, it stays as an orphan."""
    with contextlib.suppress(OSError):
        filesystem.delete_file(path)


class TableFiles:
    """Writes the rows of one task. Use it as a context manager: after an error, its files are deleted."""

    def __init__(self, uri: str, *, is_by_day: bool, file_bytes: int) -> None:
        self._filesystem, self._root = table_files(uri)
        self._is_by_day = is_by_day
        self._file_bytes = file_bytes
        self._open: dict[int | None, _File] = {}
        """By day, least recently used first."""
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        if not self._is_by_day:
            if batch.num_rows:
                self._add_to(None, batch)
            return
        for day, rows in by_day(batch):
            self._add_to(day, rows)

    def finish(self) -> list[DataFile]:
        """All files, complete and on disk."""
        for day in list(self._open):
            self._close(day)
        return self._done

    def _add_to(self, day: int | None, rows: pa.RecordBatch) -> None:
        file = self._open.pop(day, None)
        if file is None:
            if len(self._open) >= OPEN_MAX:
                self._close(next(iter(self._open)))
            file = _File(self._filesystem, self._root, self._directory(day), rows.schema)
        self._open[day] = file
        file.add(rows)
        if file.held_bytes >= ROW_GROUP_BYTES:
            file.flush()
        elif sum(each.held_bytes for each in self._open.values()) >= HELD_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.held_bytes).flush()
        if file.size_bytes >= self._file_bytes:
            self._close(day)

    def _directory(self, day: int | None) -> str:
        return f"{DAY}={NO_DAY if day is None else day_text(day)}/" if self._is_by_day else ""

    def _close(self, day: int | None) -> None:
        file = self._open.pop(day)
        self._done.append(file.finish(None if day is None else day_text(day)))

    def _discard(self) -> None:
        paths = [*(each.path for each in self._open.values()), *(each.path for each in self._done)]
        for file in self._open.values():
            file.abandon()
        for path in paths:
            delete_file(self._filesystem, f"{self._root}/{path}")


class _File:
    """One file being written."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, root: str, directory: str, schema: pa.Schema) -> None:
        self.path = f"{directory}part-{uuid.uuid4()}.{COMPRESSION}.parquet"
        self.held_bytes = 0
        self._filesystem = filesystem
        self._whole_path = f"{root}/{self.path}"
        filesystem.create_dir(os.path.dirname(self._whole_path), recursive=True)
        self._sink = filesystem.open_output_stream(self._whole_path)
        self._writer = _writer(self._sink, schema)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._stats = Stats()

    @property
    def size_bytes(self) -> int:
        """The bytes on disk so far."""
        return int(self._sink.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows, held until they are worth a row group."""
        self._held.append(rows)
        self.held_bytes += rows.nbytes
        self._stats.add(rows)

    def flush(self) -> None:
        """Writes the held rows as a row group."""
        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._held.clear()
            self.held_bytes = 0
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def finish(self, day: str | None) -> DataFile:
        """Completes the file and describes it."""
        self.flush()
        self._writer.close()
        size_bytes = self.size_bytes
        self._sink.close()
        if isinstance(self._filesystem, pyarrow.fs.LocalFileSystem):
            # A table must not name a file that a power failure can destroy.
            for path in (self._whole_path, os.path.dirname(self._whole_path)):
                _sync(path)
        return DataFile(
            self.path, size_bytes, self._stats.rows, day, self._stats.to_json(), time.time_ns() // 1_000_000
        )

    def abandon(self) -> None:
        """Closes a file that will not be used."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
            self._sink.close()


def _writer(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer: no dictionary for unique values, no statistics for raw keys and values; neither would help."""
    rising = [name for name in ("offset", "timestamp") if name in schema.names]
    plain = [each.name for each in schema if each.name in ("key", "value") and pa.types.is_binary(each.type)]
    leaves = [leaf for each in schema if each.name not in plain for leaf in _leaves(each.name, each.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=COMPRESSION,
        use_dictionary=[leaf for leaf in leaves if leaf not in rising],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=leaves,
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The Parquet names of the leaf columns that store a column."""
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _leaves(f"{path}.{each.name}", each.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


class Stats:
    """The number of rows, and the minimum and maximum of a few columns."""

    def __init__(self) -> None:
        self.rows = 0
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        self.rows += rows.num_rows
        for name in COUNTED:
            if name in rows.schema.names and rows.num_rows:
                found = pc.min_max(rows.column(name).cast(pa.int64()))
                least, most = found["min"].as_py(), found["max"].as_py()
                self._least[name] = min(least, self._least.get(name, least))
                self._most[name] = max(most, self._most.get(name, most))

    def to_json(self) -> str:
        """The statistics in Delta's format. A timestamp outside the calendar is left out: readers would fail on it."""
        names = [name for name in self._least if name != "timestamp" or self._has_dates]
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _value(name, self._least[name]) for name in names},
                "maxValues": {name: _value(name, self._most[name]) for name in names},
                "nullCount": dict.fromkeys(names, 0),
            },
            separators=(",", ":"),
        )

    @property
    def _has_dates(self) -> bool:
        return all(_moment(bound["timestamp"]) is not None for bound in (self._least, self._most))


def day_text(day: int) -> str:
    """A day in ISO form, such as 2026-01-31."""
    return (_EPOCH_DAY + timedelta(days=day)).isoformat()


def _value(name: str, number: int) -> int | str | None:
    return _moment(number) if name == "timestamp" else number


def _moment(stamp_us: int) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=stamp_us)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
