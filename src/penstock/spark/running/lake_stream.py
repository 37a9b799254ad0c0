"""The stream from a topic into its table: the processing of each micro-batch.

Spark decides when there is a batch and which offsets it has, keeps that in its checkpoint, and runs the tasks. A task
reads its part of the topic and writes it as Parquet in one process: through the JVM, whose rows are not needed here, it
would take several times as long. Tasks report their files; only files reported by accepted attempts are committed.
Spark repeats a batch that it has not recorded as done, with the same number and the same offsets; the table shows
whether it is already committed. A run that another has overtaken is refused before it commits, and before it reports a
batch as done.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from penstock.client.blocking import SyncClient
from penstock.spark.driver import Stream
from penstock.spark.lake.commit import Batch, CommitRefused, LakeTable
from penstock.spark.lake.dead_letters import DeadLetterPlan
from penstock.spark.lake.decoding import Decoder
from penstock.spark.lake.rows import table_schema
from penstock.spark.lake.writing import Report, WritePlan
from penstock.spark.offsets import Stored, from_stored
from penstock.spark.options import SourceOptions, stream_options
from penstock.spark.project.plan import Bad, ClusterPlan, Lake, Policy
from penstock.spark.running.beginning import Beginning, beginning_of
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.claim import Claim
from penstock.spark.running.lake_task import run_task
from penstock.spark.schemas.ddl import fields_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MIB = 1024 * 1024
TASK_BYTES_LEAST, TASK_BYTES_MOST = 128 * MIB, 1024 * MIB
"""The bytes of a topic per task that give files of the best size; less only if cores would be idle otherwise."""
QUERY_ID = "sql.streaming.queryId"
TOPIC_IDS_FILE = "penstock-topic-ids.json"


class Closing(Exception):
    """The pipeline is being stopped."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a micro-batch."""

    batch: int
    ends: Stored
    rows: int
    bad: int
    files: int
    newest_us: int | None
    seconds: float
    is_repeated: bool
    """Whether it was already committed."""


class LakeStream:
    """One pipeline on a session."""

    def __init__(
        self,
        spark: "SparkSession",
        cluster: ClusterPlan,
        lake: Lake,
        checkpoint: Checkpoint,
        *,
        client: SyncClient,
        may_adopt: bool,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._checkpoint = checkpoint
        self.claim = Claim(checkpoint.path)
        decoder = decoder_of(lake)
        self._plan = write_plan(cluster, lake, decoder)
        self.table = lake_table(lake, decoder, may_adopt=may_adopt)
        self.beginning = beginning_of(lake, checkpoint, self.table, client)
        slots = spark.sparkContext.defaultParallelism
        self._options = source_options(cluster, lake, self.beginning, checkpoint, slots)
        self._source: Stream | None = None
        self.told: Callable[[BatchResult], None] = lambda _: None
        """Called after each batch."""
        self.is_closing = False
        """Whether no further batch may begin."""
        self.has_closed = False
        """Whether a batch was refused for that reason, which has ended the query."""
        self.is_busy = False
        self.ended_s = 0.0
        """When the last batch ended, by the monotonic clock."""
        self.failure: Exception | None = None
        """The error of the last batch; Spark's report of it is longer and says less."""

    def start(self, *, is_once: bool) -> "StreamingQuery":
        """Starts a query that runs until it is stopped, or up to the current end of the topic."""
        frame = self._spark.readStream.format("penstock").options(**self._options).load()
        writer = frame.writeStream.queryName(self._lake.name).foreachBatch(self._run)
        writer = writer.option("checkpointLocation", str(self._checkpoint.path))
        if is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._lake.trigger_ms} milliseconds").start()

    def close(self) -> None:
        """Closes the connection that plans batches."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _run(self, _: "DataFrame", number: int) -> None:
        if self.is_closing:
            self.has_closed = True
            raise Closing("no further batch begins")
        self.is_busy = True
        try:
            if (overtaken := self._planned_later(number)) is not None:
                raise overtaken
            self.claim.take()
            result = self._through(number)
            self._check_claim()
            self.told(result)
        except Exception as error:
            overtaken = self.overtaken() or self._planned_later(number)
            self.failure = overtaken or error
            if overtaken is not None and overtaken is not error:
                raise overtaken from error
            raise
        finally:
            self.ended_s = monotonic()
            self.is_busy = False

    def overtaken(self) -> CommitRefused | None:
        """An error if another run has taken over the checkpoint: it is then the cause of any failure here."""
        successor = self.claim.successor()
        if successor is None:
            return None
        return CommitRefused(
            f"Another run of {self._lake.name} ({successor}) has taken over its checkpoint: this one stops. Find out "
            "which of them shall go on, and stop the other."
        )

    def _check_claim(self) -> None:
        if (overtaken := self.overtaken()) is not None:
            raise overtaken

    def _planned_later(self, number: int) -> CommitRefused | None:
        """An error if another run has planned a later batch."""
        planned = self._checkpoint.last_planned
        if planned is None or planned <= number:
            return None
        return CommitRefused(
            f"Another run of {self._lake.name} is at batch {planned}, and this one at {number}: this one stops. Find "
            "out which of them shall go on, and stop the other."
        )

    def _through(self, number: int) -> BatchResult:
        begun_s = monotonic()
        query_id = self._spark.sparkContext.getLocalProperty(QUERY_ID)
        ends = self._checkpoint.ends(number)
        if self.table.holds(query_id, number, ends):
            return BatchResult(number, ends, 0, 0, 0, None, monotonic() - begun_s, is_repeated=True)
        reports = self._written(number, ends)
        files = [file for report in reports for file in report.files]
        rows, bad = sum(report.rows for report in reports), sum(report.bad for report in reports)
        starts = self.beginning.behind if number == 0 else None
        self._check_claim()
        is_new = self.table.commit(query_id, Batch(number, starts, ends, files, rows, bad))
        if self._source is not None:
            self._source.reached(from_stored(ends))
        newest_us = max((report.newest_us for report in reports if report.newest_us is not None), default=None)
        seconds = monotonic() - begun_s
        return BatchResult(number, ends, rows, bad, len(files), newest_us, seconds, is_repeated=not is_new)

    def _written(self, number: int, ends: Stored) -> list[Report]:
        """Runs the tasks of a batch and returns their reports."""
        options = self._read_options
        if self._source is None:
            self._source = Stream(options)
        start = self._source.initial() if number == 0 else from_stored(self._checkpoint.ends(number - 1))
        tasks = self._source.tasks(start, from_stored(ends))
        if not tasks:
            return []
        work = partial(run_task, options=options, plan=self._plan)
        found = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
        return [Report.from_json(each) for each in found]

    @property
    def _read_options(self) -> SourceOptions:
        return stream_options({name.lower(): value for name, value in self._options.items()})


def decoder_of(lake: Lake) -> Decoder:
    """How the pipeline decodes keys and values."""
    return Decoder(lake.decode.key, lake.decode.value, fields_of(lake.decode.schema))


def source_options(
    cluster: ClusterPlan, lake: Lake, beginning: Beginning, checkpoint: Checkpoint, slots: int
) -> dict[str, str]:
    """The options of `format("penstock")`. By default, records of aborted transactions are not read."""
    kafka = {"isolation.level": "read_committed", "client.id": f"penstock-{lake.name}", **cluster.kafka}
    return {
        **{f"kafka.{name}": value for name, value in kafka.items()},
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": lake.source.topic,
        "startingOffsets": json.dumps(beginning.offsets),
        "includeHeaders": str(lake.source.has_headers).lower(),
        "max_bytes_per_trigger": str(lake.batch_bytes_max),
        "task_bytes": str(min(TASK_BYTES_MOST, max(TASK_BYTES_LEAST, lake.batch_bytes_max // slots))),
        "topic_ids_file": str(checkpoint.path / TOPIC_IDS_FILE),
        **({} if lake.source.group is None else {"commit_group": lake.source.group}),
        **_gap_options(lake.on_gap),
    }


def write_plan(cluster: ClusterPlan, lake: Lake, decoder: Decoder) -> WritePlan:
    """The settings of the tasks."""
    target, policy = lake.target, lake.on_bad_record
    letters = None if policy.topic is None else DeadLetterPlan(cluster, policy.topic, lake.name)
    return WritePlan(target.uri, lake.name, target.is_by_day, target.file_bytes, decoder, policy.what, letters)


def lake_table(lake: Lake, decoder: Decoder, *, may_adopt: bool) -> LakeTable:
    """The table, with the columns that the pipeline writes."""
    target = lake.target
    schema = table_schema(
        decoder.key_type, decoder.value_type, has_headers=lake.source.has_headers, is_by_day=target.is_by_day
    )
    return LakeTable(target.uri, lake.name, schema, target.is_by_day, may_adopt=may_adopt)


def _gap_options(policy: Policy) -> dict[str, str]:
    if policy.what is Bad.DLQ:
        assert policy.topic is not None, "the file was read"
        return {"on_gap": "dlq", "dlq_topic": policy.topic}
    return {"on_gap": policy.what.value}
