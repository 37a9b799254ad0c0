"""What a task does with its part of a micro-batch: good rows into files, bad ones where they belong, a report back.

Nothing that a task does shows in the table before the driver commits what the reports name.
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
    """A record cannot be read, and the pipeline is to stop at such a one."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What tasks are told."""

    uri: str
    pipeline: str
    is_by_day: bool
    file_bytes: int
    decoder: Decoder
    on_bad_record: Bad
    dead_letters: DeadLetterPlan | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a task has done."""

    files: tuple[DataFile, ...]
    bad: int
    newest_us: int | None
    """The latest timestamp of its rows."""

    @property
    def rows(self) -> int:
        """How many went into files."""
        return sum(each.rows for each in self.files)

    def to_json(self) -> str:
        """As it travels."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """As it arrives."""
        found = json.loads(text)
        return cls(tuple(DataFile(**each) for each in found["files"]), found["bad"], found["newest_us"])


def write(batches: Iterable[pa.RecordBatch], plan: WritePlan) -> Report:
    """The whole part, or an error and nothing left behind."""
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
