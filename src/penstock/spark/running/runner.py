"""Runs pipelines on one session until it is stopped, and reports their progress.

The first stop lets batches under way finish; a second one does not wait for them.
"""

import threading
import time
from collections.abc import Callable, Sequence
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
from penstock.spark.running.lake_stream import LakeStream
from penstock.spark.running.run import OVER, Run, State, Status
from penstock.spark.running.upkeep import Upkeep
from penstock.spark.running.watch import LAST_LIMIT_S, Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5
ANSWER_MS = 1500
"""How long a broker that refuses connections is tried before it counts as away."""


class Runner:
    """Runs pipelines on a session."""

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
        """Whether to run on without a running lake, for audits."""
        self._stops = 0
        self._wake = threading.Event()
        with connect(project.cluster) as client:
            self.runs = [self._prepared(spark, lake, client) for lake in lakes]
        self._upkeep = Upkeep(spark, [] if is_once else list(lakes), self._is_calm)

    def stop(self) -> None:
        """Stops after the batches under way; called twice, now. For a signal handler."""
        self._stops += 1
        self._wake.set()

    def run(self, show: Callable[[list[Status]], None]) -> list[Status]:
        """Runs until it is stopped or nothing is left to run; returns the final statuses."""
        topics = [each.lake.source.topic for each in self.runs]
        watch = Watch(lambda: connect(self._project.cluster, timeout_ms=ANSWER_MS), topics, self._saw, self._missed)
        try:
            while not self._is_over():
                now_s = time.monotonic()
                for each in self.runs:
                    each.look(now_s)
                show([each.status() for each in self.runs])
                self._wake.wait(LOOK_S)
                self._wake.clear()
            if any(each.state not in OVER for each in self.runs):
                watch.poll(LAST_LIMIT_S)
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
                each.saw(latest)

    def _missed(self, topic: str, reason: str, is_broker_away: bool) -> None:
        for each in self.runs:
            if each.lake.source.topic == topic:
                each.missed(reason, is_broker_away=is_broker_away)

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

    Audits keep it running when no lake runs, but not if a lake has failed: the supervisor of the process must notice
    that.
    """
    return all(each in OVER for each in states) and (not is_endless or State.FAILED in states)


def _ensure(topic: str, client: SyncClient) -> None:
    """Creates a dead letter topic with the broker's defaults, if it is missing."""
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
