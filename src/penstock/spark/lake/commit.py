"""Commits micro-batches to a table, each once.

The table itself records its writer and progress: a property names the query (the id in its checkpoint) that writes a
pipeline's batches, and Delta's `txn` of that query holds the number of the last batch. Both are read and the batch is
committed on one version of the table, so the loser of a race reads again and detects it. A mismatch is refused, never
guessed at: to skip a batch that is missing loses rows, to write one that is committed duplicates them.

    the table's last batch   this batch   action
    N                        N            none: committed, but the driver died before Spark recorded it
    N - 1                    N            commit
    none                     0            commit: a new checkpoint of a new table
    anything else                         refuse: checkpoint and table are of different times
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import Transaction

from penstock.spark.lake.table import (
    DataFile,
    Moved,
    Note,
    create_table,
    notes,
    open_table,
    set_properties,
    swap,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

ATTEMPTS_MAX = 50
Ends = Mapping[str, Mapping[str, int]]


class CommitRefused(Exception):
    """The batch must never be committed; the message says what an operator can do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch whose files are written."""

    number: int
    starts: Ends | None
    """The start offsets, if this is the first batch of a checkpoint that continues from the table's end."""
    ends: Ends
    files: Sequence[DataFile]
    rows: int
    bad: int


@dataclass
class LakeTable:
    """The table of a pipeline. Methods take the id of the query that writes it."""

    uri: str
    pipeline: str
    schema: "pa.Schema"
    is_by_day: bool
    may_adopt: bool = False
    """Whether another query's table may be taken over."""

    def holds(self, query_id: str, batch: int, ends: Ends) -> bool:
        """Whether a batch is already committed. Raises CommitRefused if it can never be."""
        table = open_table(self.uri)
        return table is not None and self._is_there(table, query_id, batch, ends)

    def commit(self, query_id: str, batch: Batch) -> bool:
        """Commits a batch; False if already done. Raises CommitRefused on a mismatch, or if another query writes."""
        is_tried = False
        for _ in range(ATTEMPTS_MAX):
            try:
                table = self._opened(query_id)
                if self._is_there(table, query_id, batch.number, batch.ends):
                    if is_tried:
                        raise CommitRefused(
                            f"Another run of {self.pipeline} has just committed batch {batch.number} to {self.uri}: "
                            "this one stops. Find out which of them shall go on, and stop the other."
                        )
                    return False
                self._claim(table, query_id, batch)
                is_tried = True
                self._append(table, query_id, batch)
            except Moved:
                continue
            return True
        raise CommitRefused(
            f"{self.uri} was changed {ATTEMPTS_MAX} times while batch {batch.number} was to be committed."
        )

    def owner(self) -> str | None:
        """The id of the query that writes the pipeline's batches, if any."""
        table = open_table(self.uri)
        return None if table is None else self._owner(table)

    def ends(self) -> Ends | None:
        """The end offsets of the pipeline in its topic, from its newest note in the table."""
        table = open_table(self.uri)
        return None if table is None else self._ends(table)

    # --- reading

    def _opened(self, query_id: str) -> "DeltaTable":
        table = open_table(self.uri)
        if table is None:
            create_table(self.uri, self.schema, is_by_day=self.is_by_day, properties={self._property: query_id})
            table = open_table(self.uri)
            assert table is not None, "it was made just now"
        self._check_schema(table)
        return table

    def _check_schema(self, table: "DeltaTable") -> None:
        from deltalake import Schema

        wanted, found = Schema.from_arrow(self.schema), table.schema()
        if {each.name: str(each.type) for each in wanted.fields} != {
            each.name: str(each.type) for each in found.fields
        }:
            raise CommitRefused(
                f"{self.uri} has other columns than {self.pipeline} writes: the table has {_columns(found)}; the "
                f"pipeline {_columns(wanted)}. Change decode, or write to another table."
            )
        if bool(table.metadata().partition_columns) != self.is_by_day:
            raise CommitRefused(
                f"{self.uri} is not partitioned as partition_by says: change it, or write to another table."
            )

    def _is_there(self, table: "DeltaTable", query_id: str, number: int, ends: Ends) -> bool:
        owner = self._owner(table)
        if owner != query_id:
            self._check_newcomer(owner, number)
            return False
        last = table.transaction_version(self._app(query_id))
        if last == number:
            self._check_same(table, number, ends)
            return True
        if last is None and number == 0:
            return False
        if last is None or last < number - 1:
            raise CommitRefused(
                f"{self.uri} lacks batches of {self.pipeline}: the checkpoint is at batch {number}, the table "
                f"{'has none' if last is None else f'ends with {last}'}. Was the table restored or made anew? To go on "
                "where the table ends, move the checkpoint away and run again with --adopt."
            )
        if last > number:
            raise CommitRefused(
                f"{self.uri} has batch {last} of {self.pipeline} already, the checkpoint is only at batch {number}. "
                "Was the checkpoint restored? To go on where the table ends, move it away and run again with --adopt."
            )
        return False

    def _check_newcomer(self, owner: str | None, number: int) -> None:
        if owner is None and number > 0:
            raise CommitRefused(
                f"{self.uri} knows nothing of {self.pipeline}, whose checkpoint is at batch {number}: earlier batches "
                "would be missing. Was the table deleted? To fill it anew, move the checkpoint away."
            )
        if owner is not None and not self.may_adopt:
            raise CommitRefused(
                f"{self.uri} is written by another checkpoint of {self.pipeline} (query {owner}). Beginning anew would "
                "double its rows. Use the old checkpoint; or run with --adopt to go on where the table ends."
            )

    def _check_same(self, table: "DeltaTable", number: int, ends: Ends) -> None:
        """Raises CommitRefused if the batch of this number has other end offsets: it is another batch."""
        for note in notes(table):
            if note.pipeline == self.pipeline and note.batch == number:
                if _plain(note.ends) != _plain(ends):
                    raise CommitRefused(
                        f"Batch {number} of {self.pipeline} in {self.uri} is another than the checkpoint has. Was the "
                        "checkpoint restored? To go on where the table ends, move it away and run again with --adopt."
                    )
                return

    def _ends(self, table: "DeltaTable") -> Ends | None:
        return next((note.ends for note in notes(table) if note.pipeline == self.pipeline), None)

    # --- writing

    def _claim(self, table: "DeltaTable", query_id: str, batch: Batch) -> None:
        """Makes the query the writer of the table. The old writer is refused from then on."""
        owner = self._owner(table)
        if owner == query_id:
            return
        if owner is not None:
            ends = self._ends(table)
            if ends is not None and (batch.starts is None or _plain(batch.starts) != _plain(ends)):
                raise CommitRefused(
                    f"{self.uri} has grown since {self.pipeline} was to go on from its end: another run still writes "
                    "to it. Stop that one, move the new checkpoint away, and run again with --adopt."
                )
        set_properties(table, {self._property: query_id})
        raise Moved("the table has a new version, which names us")

    def _append(self, table: "DeltaTable", query_id: str, batch: Batch) -> None:
        note = Note(self.pipeline, query_id, batch.number, batch.ends, batch.rows, batch.bad)
        swap(table, batch.files, app=Transaction(self._app(query_id), batch.number), note=note.to_json())

    def _owner(self, table: "DeltaTable") -> str | None:
        return table.metadata().configuration.get(self._property)

    @property
    def _property(self) -> str:
        return f"penstock.{self.pipeline}.query"

    def _app(self, query_id: str) -> str:
        return f"penstock:{self.pipeline}:{query_id}"


def _plain(ends: Ends) -> dict[str, dict[str, int]]:
    return {topic: dict(numbers) for topic, numbers in ends.items()}


def _columns(schema: object) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema.fields)  # type: ignore[attr-defined]
