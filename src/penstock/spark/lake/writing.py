"""Writes a task's part of a micro-batch: good rows to files, bad ones according to the policy; returns a report.

Nothing that a task writes is visible in the table before the driver commits the files that the reports name.
"""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.lake.dead_letters import DeadLetterPlan, DeadLetters, Letter
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.files import TableFiles
from penstock.spark.lake.table import DataFile
from penstock.spark.project.plan import Bad


class BadRecord(Exception):
    """A record cannot be decoded, and the pipeline is to stop at a bad record."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The settings of the tasks."""

    uri: str
    pipeline: str
    is_by_day: bool
    file_bytes: int
    decoder: Decoder
    on_bad_record: Bad
    dead_letters: DeadLetterPlan | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a task."""

    files: tuple[DataFile, ...]
    bad: int
    newest_us: int | None
    """The latest timestamp of its rows."""

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(each.rows for each in self.files)

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Parses a report."""
        found = json.loads(text)
        return cls(tuple(DataFile(**each) for each in found["files"]), found["bad"], found["newest_us"])


def write(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> Report:
    """Writes the whole part; on an error, deletes the files."""
    bad_count, newest_us = 0, None
    with contextlib.ExitStack() as held:
        files = held.enter_context(TableFiles(plan.uri, is_by_day=plan.is_by_day, file_bytes=plan.file_bytes))
        letters = None if plan.dead_letters is None else held.enter_context(DeadLetters(plan.dead_letters))
        for batch in batches:
            if batch.num_rows:
                last_us = pc.max(batch.column("timestamp").cast(pa.int64())).as_py()
                newest_us = last_us if newest_us is None else max(newest_us, last_us)
            good, bad = plan.decoder.decode(batch)
            files.add(good)
            if bad:
                bad_count += len(bad)
                _meet(bad, plan, letters)
        return Report(tuple(files.finish()), bad_count, newest_us)


def _meet(bad: list[Letter], plan: WritePlan, letters: DeadLetters | None) -> None:
    match plan.on_bad_record:
        case Bad.DLQ:
            assert letters is not None, "the plan has a topic for them"
            letters.send(bad)
        case Bad.FAIL:
            first = bad[0]
            raise BadRecord(
                f"{plan.pipeline} cannot read the record {first.topic}[{first.partition}] at offset {first.offset}: "
                f"{first.reason}. Set on_bad_record to {{dlq: {first.topic}.dlq}} to put such records aside, or skip."
            )
        case Bad.SKIP:
            return
