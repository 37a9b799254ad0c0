"""Joins small files into large ones, without delaying the stream.

Files are joined only some time after they were written, and never those of the day that the stream is writing. The
commit puts the same rows into other files (`dataChange` is false), on a version of the table that still has all of the
old files: if one of them is gone, another writer was faster, and the new file is deleted. The stream's own commits
never wait, and a commit of joined files does not disturb them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.lake.files import TableFiles, delete_file, stored_rows, table_files
from penstock.spark.lake.table import DataFile, Moved, live_files, open_table, swap

SMALL_DIVISOR = 2
"""A file of half the wanted size or more stays as it is."""
FILES_MIN = 4
"""Fewer small files are not worth rewriting their rows."""
ATTEMPTS_MAX = 20
NOTE = '{"penstock":{"compaction":true}}'


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one day that are joined into one."""

    day: str | None
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(each.rows for each in self.files)


@dataclass(frozen=True, slots=True)
class Joined:
    """The files before and after a round, and the bytes written."""

    before: int
    after: int
    size_bytes: int


def groups_of(files: Iterable[DataFile], *, now_ms: int, quiet_ms: int, file_bytes: int) -> list[Group]:
    """The groups worth joining now, the oldest days first."""
    known = sorted(files, key=lambda each: (each.day or "", each.written_ms, each.path))
    recent = [each.day or "" for each in known if now_ms - each.written_ms < quiet_ms]
    being_written = max(recent, default=None)
    small = [
        each
        for each in known
        if each.size_bytes < file_bytes // SMALL_DIVISOR
        and now_ms - each.written_ms >= quiet_ms
        and (each.day or "") != being_written
    ]
    return [
        group
        for day, found in groupby(small, key=lambda each: each.day)
        for group in _packed(day, list(found), file_bytes)
        if len(group.files) >= FILES_MIN
    ]


def _packed(day: str | None, files: Sequence[DataFile], file_bytes: int) -> Iterable[Group]:
    held: list[DataFile] = []
    for each in files:
        held.append(each)
        if sum(file.size_bytes for file in held) >= file_bytes:
            yield Group(day, tuple(held))
            held = []
    if held:
        yield Group(day, tuple(held))


def join(uri: str, schema: pa.Schema, group: Group, *, is_by_day: bool) -> list[DataFile]:
    """Writes the rows of a group into a new file. Runs in a task."""
    filesystem, root = table_files(uri)
    whole_bytes = 2 * sum(each.size_bytes for each in group.files) + 1
    with TableFiles(uri, is_by_day=is_by_day, file_bytes=whole_bytes) as writer:
        for file in group.files:
            with filesystem.open_input_file(f"{root}/{file.path}") as source:
                for batch in stored_rows(pq.ParquetFile(source), schema):
                    writer.add(batch)
        made = writer.finish()
        rows = sum(each.rows for each in made)
        if rows != group.rows:
            raise ValueError(f"{rows} rows came out of files that have {group.rows}: {[e.path for e in group.files]}")
    return made


def compact(
    uri: str,
    *,
    now_ms: int,
    quiet_ms: int,
    file_bytes: int,
    run: Callable[[Group], list[DataFile]],
    may_go_on: Callable[[], bool] = lambda: True,
) -> Joined:
    """Joins the groups worth it, one by one, while `may_go_on` allows. `run` joins one group, such as in a task."""
    before = after = size_bytes = 0
    table = open_table(uri)
    groups = (
        [] if table is None else groups_of(live_files(table), now_ms=now_ms, quiet_ms=quiet_ms, file_bytes=file_bytes)
    )
    for group in groups:
        if not may_go_on():
            break
        made = run(group)
        if _replace(uri, group, made):
            before += len(group.files)
            after += len(made)
            size_bytes += sum(each.size_bytes for each in made)
        else:
            filesystem, root = table_files(uri)
            for each in made:
                delete_file(filesystem, f"{root}/{each.path}")
    return Joined(before, after, size_bytes)


def _replace(uri: str, group: Group, made: Sequence[DataFile]) -> bool:
    """Replaces old files with new ones; False if an old one is gone, or after ATTEMPTS_MAX conflicts."""
    from dataclasses import replace

    written_ms = max(each.written_ms for each in group.files)
    aged = [replace(each, written_ms=written_ms) for each in made]
    for _ in range(ATTEMPTS_MAX):
        table = open_table(uri)
        if table is None or not {each.path for each in group.files} <= {each.path for each in live_files(table)}:
            return False
        try:
            swap(table, aged, group.files, app=None, note=NOTE)
        except Moved:
            continue
        return True
    return False
