"""A Delta table, changed by compare-and-set only.

By default, delta-rs rebases a change onto the newest version, and accepts changes that must be refused: two changes
that remove the same files, or a batch that is already committed. So a change is made to the version that was read, or
not at all: `Moved` reports that another writer was faster, and the caller reads the table again.

Tables keep to the base protocol (no deletion vectors, no column mapping), so that every Delta reader can read them.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

if TYPE_CHECKING:
    import pyarrow as pa

DAY = "day"
MARK = "penstockCommit"
"""Distinguishes our commit from another writer's commit of the same version."""
LOOK_BACK = 200
"""How many commits are searched for a note; the notes that matter are among the newest."""


class Moved(Exception):
    """The table is no longer at the version that was read."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file in the table's directory; it belongs to the table once a commit adds it."""

    path: str
    """Relative to the table."""
    size_bytes: int
    rows: int
    day: str | None
    """The partition; None also if the table has no partitions."""
    stats: str
    """In Delta's JSON format."""
    written_ms: int
    """When its rows were written for the first time."""


@dataclass(frozen=True, slots=True)
class Note:
    """The metadata that we write with a commit."""

    pipeline: str
    query_id: str
    batch: int
    ends: Mapping[str, Mapping[str, int]]
    """The end offsets in the topic, in the form of a checkpoint."""
    rows: int
    bad: int

    def to_json(self) -> str:
        """The note as stored in the Delta log."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"penstock": fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: object) -> "Note | None":
        """Parses a note; None if another writer wrote the metadata."""
        try:
            return cls(**json.loads(text)["penstock"])  # type: ignore[arg-type]
        except (TypeError, ValueError, KeyError):
            return None


def open_table(uri: str) -> DeltaTable | None:
    """The newest version, if there is a table."""
    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None


def create_table(uri: str, schema: "pa.Schema", *, is_by_day: bool, properties: Mapping[str, str]) -> None:
    """Creates an empty table. Raises Moved if there is one."""
    try:
        DeltaTable.create(
            uri,
            schema,
            mode="error",
            partition_by=[DAY] if is_by_day else [],
            configuration=dict(properties),
            raise_if_key_not_exists=False,
        )
    except DeltaError as error:
        if open_table(uri) is None:
            raise
        raise Moved(str(error)) from None


def set_properties(table: DeltaTable, properties: Mapping[str, str]) -> None:
    """Writes properties of our own into the table."""
    version = table.version()
    try:
        table.alter.set_table_properties(
            dict(properties), raise_if_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0)
        )
    except DeltaError as error:
        _check_moved(table, version, error)
        raise


def swap(
    table: DeltaTable,
    added: Iterable[DataFile],
    removed: Iterable[DataFile] = (),
    *,
    app: Transaction | None,
    note: str,
) -> None:
    """Adds and removes files and records the application's progress, in one commit.

    Files that replace others hold the same rows: readers that follow the table see no change.
    """
    now_ms = time.time_ns() // 1_000_000
    is_by_day = DAY in table.metadata().partition_columns
    removals = [RemoveAction(each.path, False, now_ms, each.size_bytes, _values(each, is_by_day)) for each in removed]
    additions = [
        AddAction(each.path, each.size_bytes, _values(each, is_by_day), each.written_ms, not removals, each.stats)
        for each in added
    ]
    before = table.version()
    mark = uuid.uuid4().hex
    metadata = {"userMetadata": note, "isBlindAppend": not removals, MARK: mark}
    try:
        table.create_write_transaction(
            [*additions, *removals],
            "append",
            table.schema(),
            [DAY] if is_by_day else [],
            commit_properties=CommitProperties(
                custom_metadata=metadata, max_commit_retries=0, app_transactions=None if app is None else [app]
            ),
        )
    except DeltaError as error:
        if _is_written(
            table, before + 1, mark
        ):  # the commit was written; a later step failed, such as a checkpoint of the log
            return
        _check_moved(table, before, error)
        raise


def live_files(table: DeltaTable) -> list[DataFile]:
    """The files of the table."""
    import pyarrow as pa

    found = pa.table(table.get_add_actions(flatten=True))  # type: ignore[arg-type,unused-ignore]
    days = found[f"partition.{DAY}"].to_pylist() if f"partition.{DAY}" in found.column_names else [None] * len(found)
    columns = [found[name].to_pylist() for name in ("path", "size_bytes", "num_records", "modification_time")]
    return [
        DataFile(path, size_bytes, rows or 0, None if day is None else day.isoformat(), "", written_ms)
        for path, size_bytes, rows, written_ms, day in zip(*columns, days, strict=True)
    ]


def stored_schema(table: DeltaTable) -> "pa.Schema":
    """The columns stored in files: all but the one by which the table is partitioned."""
    import pyarrow as pa

    return pa.schema([each for each in pa.schema(table.schema().to_arrow()) if each.name != DAY])


def notes(table: DeltaTable) -> Iterable[Note]:
    """Our notes of the last commits, the newest first."""
    for _, note in noted(table):
        yield note


def noted(table: DeltaTable) -> Iterable[tuple[int, Note]]:
    """Like `notes`, with the time of each commit in milliseconds."""
    for commit in table.history(LOOK_BACK):
        if (note := Note.from_json(commit.get("userMetadata"))) is not None:
            yield commit["timestamp"], note


def _values(file: DataFile, is_by_day: bool) -> dict[str, str | None]:
    return {DAY: file.day} if is_by_day else {}


def _is_written(table: DeltaTable, version: int, mark: str) -> bool:
    fresh = open_table(table.table_uri)
    if fresh is None or fresh.version() < version:
        return False
    commits = fresh.history(fresh.version() - version + 1)
    return any(each.get("version") == version and each.get(MARK) == mark for each in commits)


def _check_moved(table: DeltaTable, version: int, error: DeltaError) -> None:
    fresh = open_table(table.table_uri)
    if isinstance(error, CommitFailedError) and fresh is not None and fresh.version() > version:
        raise Moved(str(error)) from None
