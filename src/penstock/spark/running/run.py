"""One pipeline from its first start to its last: its query, its state and its progress.

A query that fails is restarted from its checkpoint, with a longer pause each time, as long as it makes progress; one
that is refused is not, because that needs an operator, and neither is one whose checkpoint another run has taken over.
"""

import logging
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.spark.offsets import Stored
from penstock.spark.project.plan import Lake
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.failures import RACE, Failure, failure_of
from penstock.spark.running.gauge import Gauge, Reading, between
from penstock.spark.running.lake_stream import BatchResult, LakeStream

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

PAUSE_S, PAUSE_S_MAX = 1.0, 60.0
FAILURES_MAX, FAILURES_ONCE_MAX = 8, 3
"""Failures without a batch in between until a pipeline fails; fewer if a caller waits for the run to end by itself."""
NOTED_S = 5.0
"""How long Spark may take to record that a batch is done."""


class State(Enum):
    """The state of a pipeline."""

    RUNNING = "running"
    WAITING = "waiting"
    """Until it is started, for the first time or again."""
    BROKER_AWAY = "waiting for broker"
    """It is running or waiting, or was until it was stopped, and no broker answers."""
    DONE = "done"
    FAILED = "failed"


OVER = (State.DONE, State.FAILED)

log = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a pipeline."""

    name: str
    state: State
    reading: Reading
    batch: int | None
    batch_s: float | None
    rows: int
    bad: int
    offsets: int
    """The offsets read in this run: rows, bad records, and offsets without a record."""
    failure: Failure | None
    """The last one, until a batch is done again."""
    broker_error: str | None = None
    """Why the end of the topic is not known."""


class Run:
    """See the module."""

    def __init__(
        self, lake: Lake, stream: LakeStream, checkpoint: Checkpoint, position: Stored, *, is_once: bool
    ) -> None:
        self.lake = lake
        self.state = State.WAITING
        self.failure: Failure | None = None
        self.gauge = Gauge(position)
        self.broker_error: str | None = None
        self._stream = stream
        self._checkpoint = checkpoint
        self._is_once = is_once
        self._query: StreamingQuery | None = None
        self._position = position
        self._last_result: BatchResult | None = None
        self._rows = self._bad = self._offsets = 0
        self._failures = 0
        self._again_s = 0.0
        self._is_stopped = False
        stream.told = self._told

    def _told(self, result: BatchResult) -> None:
        """Records a batch that is done. Called from Spark's thread."""
        if not result.is_repeated:
            self._rows += result.rows
            self._bad += result.bad
            self._offsets += between(self._position, result.ends)
        self._position = result.ends
        self._last_result = result
        self._failures = 0
        self.failure = None
        self.gauge.wrote(time.monotonic(), result.ends, result.rows, result.newest_us)

    def saw(self, latest: Stored) -> None:
        """Records the end offsets of the topic."""
        self.broker_error = None
        self.gauge.saw(time.monotonic(), latest)

    def missed(self, reason: str, *, is_broker_away: bool) -> None:
        """Records that the end offsets are not known."""
        self.broker_error = reason
        self.gauge.missed(time.monotonic(), is_broker_away=is_broker_away)

    def look(self, now_s: float) -> None:
        """Starts the query when it is due, and checks whether it still runs and may still run."""
        if self.state in OVER:
            return
        if (overtaken := self._stream.overtaken()) is not None:
            self.failure = failure_of(overtaken)
            self.close_softly()
            self._stop_query()
            self.state = State.FAILED
        elif self.state is State.WAITING and not self._stream.is_closing and now_s >= self._again_s:
            self._stream.failure = None
            self._query = self._stream.start(is_once=self._is_once)
            self.state = State.RUNNING
        elif self.state is State.RUNNING and self._query is not None and not self._query.isActive:
            error = self._query.exception()
            if error is None or self._stream.has_closed:
                self.state = State.DONE
            else:
                self._failed(failure_of(self._stream.failure, error), now_s)

    def _failed(self, failure: Failure, now_s: float) -> None:
        if failure == RACE and self._stream.claim.is_held:
            failure = failure._replace(is_final=False)  # the other run is the overtaken one, and will end
        self.failure = failure
        self._failures += 1
        if failure.is_final or self._failures >= (FAILURES_ONCE_MAX if self._is_once else FAILURES_MAX):
            self.state = State.FAILED
        else:
            self.state = State.WAITING
            self._again_s = now_s + min(PAUSE_S_MAX, PAUSE_S * 2 ** (self._failures - 1))

    def close_softly(self) -> None:
        """Lets no further batch start."""
        self._stream.is_closing = True

    @property
    def is_busy(self) -> bool:
        """Whether a batch is under way, or Spark has not yet recorded it as done."""
        if self.state is not State.RUNNING:
            return False
        if self._stream.is_busy:
            return True
        result, ended_s = self._last_result, self._stream.ended_s
        return (
            result is not None and time.monotonic() < ended_s + NOTED_S and self._checkpoint.last_done != result.batch
        )

    def stop(self) -> None:
        """Stops the query at once. The run is done unless it had failed before, or no broker answers."""
        if self.state not in OVER:
            if self.state is State.RUNNING and self._stream.failure is not None:
                self.failure = failure_of(self._stream.failure)
            is_away = self._reading().is_broker_away
            self._stop_query()
            self.state = State.BROKER_AWAY if is_away else State.DONE if self.failure is None else State.WAITING
        self._is_stopped = True
        self._stream.close()

    def _stop_query(self) -> None:
        try:
            if self._query is not None and self._query.isActive:
                self._query.stop()
        except Exception as error:  # a batch under way did not end in time; the end of the session ends it
            log.warning("%s: its query did not stop: %s", self.lake.name, failure_of(error).sentence)

    def _reading(self) -> Reading:
        return self.gauge.read(time.monotonic(), time.time_ns() // 1000)

    def status(self) -> Status:
        """The current status."""
        reading = self._reading()
        is_away = self.state not in OVER and not self._is_stopped and reading.is_broker_away
        result = self._last_result
        return Status(
            self.lake.name,
            State.BROKER_AWAY if is_away else self.state,
            reading,
            None if result is None else result.batch,
            None if result is None else result.seconds,
            self._rows,
            self._bad,
            self._offsets,
            self.failure,
            self.broker_error,
        )
