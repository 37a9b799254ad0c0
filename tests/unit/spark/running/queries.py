"""Fakes of a stream and its query for tests of what a run decides."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from penstock.spark.lake.commit import CommitRefused
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.lake_stream import BatchResult
from penstock.spark.running.run import Run


class FakeQuery:
    """A query as Spark has it: active until it is stopped or ended."""

    def __init__(self) -> None:
        self.isActive = True
        self.stops = 0
        self._error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        """Ends the query by itself."""
        self.isActive, self._error = False, error

    def stop(self) -> None:
        self.stops += 1
        self.isActive = False

    def exception(self) -> Exception | None:
        return self._error


class FakeStream:
    """A stream whose queries end at once with these errors, in order, and then run."""

    def __init__(self, errors: Sequence[Exception] = ()) -> None:
        self.queries: list[FakeQuery] = []
        self.failure: Exception | None = None
        self.is_closing = self.has_closed = self.is_busy = False
        self.ended_s = 0.0
        self.claim = SimpleNamespace(is_held=False)
        self.successor: CommitRefused | None = None
        self.told: Callable[[BatchResult], None] = lambda _: None
        self._errors = list(errors)

    def start(self, *, is_once: bool) -> FakeQuery:
        self.queries.append(FakeQuery())
        if self._errors:
            self.queries[-1].end(self._errors.pop(0))
        return self.queries[-1]

    def overtaken(self) -> CommitRefused | None:
        return self.successor

    def close(self) -> None:
        """Nothing is open."""


def run_of(stream: FakeStream, *, is_once: bool = False, checkpoint: Checkpoint | None = None) -> Run:
    lake = cast("Any", SimpleNamespace(name="orders_lake"))
    return Run(lake, cast("Any", stream), cast("Any", checkpoint), {"orders": {"0": 0}}, is_once=is_once)


def result(batch: int, end: int) -> BatchResult:
    return BatchResult(batch, {"orders": {"0": end}}, end, 0, 1, None, 0.1, is_repeated=False)
