"""Runs pipelines on one session until somebody stops it, and tells how far they are.

A query that fails is started again from its checkpoint, a little later each time, as long as it gets anywhere; one that
is refused is not, because that needs a person. Whoever stops it lets batches that are under way come to their end;
whoever is in a hurry stops it twice.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.client.blocking import SyncClient
from penstock.client.errors import Refused as BrokerRefused
from penstock.client.offsets import Moment
from penstock.model.errors import ErrorCode
from penstock.spark.offsets import EARLIEST, Stored
from penstock.spark.project.connecting import connect
from penstock.spark.project.plan import Lake, Project
from penstock.spark.running.beginning import Beginning
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.failures import Failure, failure_of
from penstock.spark.running.gauge import Gauge, Reading, between
from penstock.spark.running.lake_stream import LakeStream, Outcome
from penstock.spark.running.upkeep import Upkeep
from penstock.spark.running.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LOOK_S = 0.5
PAUSE_S, PAUSE_S_MAX = 1.0, 60.0
FAILURES_MAX, FAILURES_ONCE_MAX = 8, 3
"""In a row, without a batch in between; of a run that is to end by itself, and that somebody waits for."""
NOTED_S = 5.0
"""How long Spark may take to note that a batch is done."""


class State(Enum):
    """Of a pipeline."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


OVER = (State.DONE, State.FAILED)


@dataclass(frozen=True, slots=True)
class Status:
    """How a pipeline stands."""

    name: str
    state: State
    reading: Reading
    batch: int | None
    batch_s: float | None
    rows: int
    bad: int
    offsets: int
    """What was read in this run, in offsets: rows, bad records, and offsets without a record."""
    failure: Failure | None


class Run:
    """One pipeline, from its first start to its last."""

    def __init__(
        self, lake: Lake, stream: LakeStream, checkpoint: Checkpoint, position: Stored, *, is_once: bool
    ) -> None:
        self.lake = lake
        self.state = State.WAITING
        self.failure: Failure | None = None
        self.gauge = Gauge(position)
        self._stream = stream
        self._checkpoint = checkpoint
        self._is_once = is_once
        self._query: StreamingQuery | None = None
        self._position = position
        self._outcome: Outcome | None = None
        self._rows = self._bad = self._offsets = 0
        self._failures = 0
        self._again_s = 0.0
        stream.told = self._told

    def _told(self, outcome: Outcome) -> None:
        """A batch is through. Comes from Spark's thread."""
        if not outcome.is_repeated:
            self._rows += outcome.rows
            self._bad += outcome.bad
            self._offsets += between(self._position, outcome.ends)
        self._position = outcome.ends
        self._outcome = outcome
        self._failures = 0
        self.failure = None
        self.gauge.wrote(time.monotonic(), outcome.ends, outcome.rows, outcome.newest_us)

    def look(self, now_s: float) -> None:
        """Starts it when it is time, and sees whether it still runs."""
        if self.state is State.WAITING and now_s >= self._again_s:
            self._stream.failure = None
            self._query = self._stream.start(is_once=self._is_once)
            self.state = State.RUNNING
        elif self.state is State.RUNNING and self._query is not None and not self._query.isActive:
            error = self._query.exception()
            if error is None:
                self.state = State.DONE
            else:
                self._failed(failure_of(self._stream.failure, error), now_s)

    def _failed(self, failure: Failure, now_s: float) -> None:
        self.failure = failure
        self._failures += 1
        if failure.is_final or self._failures >= (FAILURES_ONCE_MAX if self._is_once else FAILURES_MAX):
            self.state = State.FAILED
        else:
            self.state = State.WAITING
            self._again_s = now_s + min(PAUSE_S_MAX, PAUSE_S * 2 ** (self._failures - 1))

    def close_softly(self) -> None:
        """No further batch begins."""
        self._stream.is_closing = True

    @property
    def is_busy(self) -> bool:
        """Whether a batch is under way, or Spark has not noted yet that it is done."""
        if self.state is not State.RUNNING:
            return False
        if self._stream.is_busy:
            return True
        outcome, ended_s = self._outcome, self._stream.ended_s
        return (
            outcome is not None and time.monotonic() < ended_s + NOTED_S and self._checkpoint.last_done != outcome.batch
        )

    def stop(self) -> None:
        """At once."""
        if self._query is not None and self.state is State.RUNNING:
            self._query.stop()
            self.state = State.DONE
        self._stream.close()

    def status(self) -> Status:
        """For whoever watches."""
        reading = self.gauge.read(time.monotonic(), time.time_ns() // 1000)
        batch = None if self._outcome is None else self._outcome.batch
        batch_s = None if self._outcome is None else self._outcome.seconds
        return Status(
            self.lake.name, self.state, reading, batch, batch_s, self._rows, self._bad, self._offsets, self.failure
        )


class Runner:
    """Pipelines on a session."""

    def __init__(
        self,
        spark: "SparkSession",
        project: Project,
        lakes: Sequence[Lake],
        *,
        is_once: bool,
        may_adopt: bool,
        is_alone: bool = True,
    ) -> None:
        self._project = project
        self._is_once = is_once
        self._may_adopt = may_adopt
        self._is_endless = not is_once and not is_alone
        """Whether there is something to wait for even when no lake runs."""
        self._stops = 0
        self._wake = threading.Event()
        with connect(project.cluster) as client:
            self.runs = [self._prepared(spark, lake, client) for lake in lakes]
        self._upkeep = Upkeep(spark, [] if is_once else list(lakes), self._is_calm)

    def stop(self) -> None:
        """Once: when batches are through. Twice: now. For a signal handler."""
        self._stops += 1
        self._wake.set()

    def run(self, show: Callable[[list[Status]], None]) -> list[Status]:
        """Until it is stopped or nothing is left to run; how it ended."""
        topics = [each.lake.source.topic for each in self.runs]
        watch = Watch(lambda: connect(self._project.cluster), topics, self._saw)
        try:
            while not self._is_over():
                now_s = time.monotonic()
                for each in self.runs:
                    each.look(now_s)
                show([each.status() for each in self.runs])
                self._wake.wait(LOOK_S)
                self._wake.clear()
        finally:
            self._upkeep.close()
            watch.close()
            for each in self.runs:
                each.stop()
        return [each.status() for each in self.runs]

    def _is_over(self) -> bool:
        if self._stops:
            for each in self.runs:
                each.close_softly()
        if self._stops == 1 and any(each.is_busy for each in self.runs):
            return False
        return bool(self._stops) or is_through([each.state for each in self.runs], is_endless=self._is_endless)

    def _saw(self, topic: str, latest: Stored) -> None:
        for each in self.runs:
            if each.lake.source.topic == topic:
                each.gauge.saw(time.monotonic(), latest)

    def _is_calm(self, name: str) -> bool:
        return any(
            each.lake.name == name and each.state is State.RUNNING and not each.is_busy for each in self.runs
        ) and not any(each.is_busy for each in self.runs)

    def _prepared(self, spark: "SparkSession", lake: Lake, client: SyncClient) -> Run:
        checkpoint = Checkpoint(self._project.checkpoint(lake.name))
        stream = LakeStream(
            spark,
            self._project.cluster,
            lake,
            checkpoint,
            may_adopt=self._may_adopt,
            client=client,
        )
        for policy in (lake.on_bad_record, lake.on_gap):
            if policy.topic is not None:
                _ensure(policy.topic, client)
        position = checkpoint.position() or _from_earliest(stream.beginning, lake.source.topic, client)
        return Run(lake, stream, checkpoint, position, is_once=self._is_once)


def is_through(states: Sequence[State], *, is_endless: bool) -> bool:
    """Whether a run has nothing more to do.

    Audits beside it go on when no lake runs, but not in place of lakes that have failed: whoever watches over the
    process must see that.
    """
    return all(each in OVER for each in states) and (not is_endless or State.FAILED in states)


def _ensure(topic: str, client: SyncClient) -> None:
    """A topic for what was put aside, as the broker makes topics."""
    try:
        client.create_topic(topic)
    except BrokerRefused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _from_earliest(beginning: Beginning, topic: str, client: SyncClient) -> Stored:
    earliest = client.run(client.admin.offsets(topic, Moment.EARLIEST))
    return {
        name: {
            number: earliest[int(number)].offset if offset == EARLIEST else offset for number, offset in numbers.items()
        }
        for name, numbers in beginning.offsets.items()
    }
