"""Audits on a session: tasks count the topic and the table, the driver compares, and the result goes to a table.

Where the counts differ, and only there, both sides are read again, and rows are compared by offset.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.client.blocking import SyncClient
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment
from penstock.spark.driver import Stream
from penstock.spark.lake.audit_page import page
from penstock.spark.lake.auditing import Side, Verdict, log_side, table_side
from penstock.spark.lake.differences import MARKS_DDL, Difference, Span, log_marks, spans_of, table_marks
from penstock.spark.lake.fingerprints import Place, merged
from penstock.spark.lake.table import DataFile, live_files, notes, open_table, stored_schema
from penstock.spark.offsets import from_stored
from penstock.spark.options import SourceOptions, stream_options
from penstock.spark.plan import Task
from penstock.spark.project.connecting import connect
from penstock.spark.project.plan import Audit, Lake, Project
from penstock.spark.project.sections import ProjectError
from penstock.spark.read import read_task
from penstock.spark.running.beginning import Beginning, known_beginning
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.lake_stream import decoder_of, source_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.lake.decoding import Decoder

GROUP_BYTES = 512 * 1024 * 1024
NAMED_MAX = 1000
T = TypeVar("T")
Spans = dict[TopicPartition, Span]

log = logging.getLogger("penstock.spark")


def audit_once(spark: "SparkSession", project: Project, audit: Audit) -> Verdict:
    """Compares a table with its topic, up to the end offsets noted in the table, and writes the result."""
    from deltalake import write_deltalake

    sides = Sides(spark, project, project.lake(audit.of))
    verdict = sides.verdict()
    if verdict.differing:
        verdict = verdict.named(sides.differences(verdict), at_most=NAMED_MAX)
    now = datetime.now(UTC)
    write_deltalake(audit.uri, verdict.rows(audit.name, now), mode="append")
    page_path(project, audit).write_text(page(verdict, audit.name, now), encoding="utf-8")
    return verdict


def page_path(project: Project, audit: Audit) -> Path:
    """The HTML page of the last result."""
    return project.spark.checkpoints / f"{audit.name}.html"


class Sides:
    """A topic and its table, as they were at one moment."""

    def __init__(self, spark: "SparkSession", project: Project, lake: Lake) -> None:
        table = open_table(lake.target.uri)
        ends = None if table is None else next((note.ends for note in notes(table) if note.pipeline == lake.name), None)
        if table is None or ends is None:
            raise ProjectError(f"{lake.name} has written nothing yet, or does not say any more how far it is.")
        self._spark = spark
        self._uri = lake.target.uri
        self._topic = lake.source.topic
        self._decoder = decoder_of(lake)
        self._schema = stored_schema(table)
        self._files = _groups(live_files(table))
        checkpoint = Checkpoint(project.checkpoint(lake.name))
        with connect(project.cluster) as client:
            self._spans = _spans(lake, checkpoint, from_stored(ends), client)
        self._options = _options(project, lake, checkpoint, spark.sparkContext.defaultParallelism)

    def verdict(self) -> Verdict:
        """Counts both sides."""
        logs = self._counted(partial(_log_task, options=self._options, decoder=self._decoder), self._tasks(self._spans))
        tables = self._counted(partial(_table_task, uri=self._uri, schema=self._schema, spans=self._spans), self._files)
        return Verdict(
            self._topic,
            merged(each.tallies for each in logs),
            merged(each.tallies for each in tables),
            sum(each.bad for each in logs),
            sum(end - first for first, end in self._spans.values()),
        )

    def differences(self, verdict: Verdict) -> list[Difference]:
        """The rows that differ, at most NAMED_MAX + 1: the last one shows that there are more."""
        from pyspark.sql.functions import max as most_of
        from pyspark.sql.functions import min as least_of
        from pyspark.sql.functions import sum as sum_of

        places = frozenset(verdict.differing)
        spans = spans_of(places, verdict.log, verdict.table)
        tasks = [task for layer in self._layers(spans) for task in self._tasks(layer)]
        works: list[Work] = [
            *(partial(_log_marks, task, self._options, self._decoder, places) for task in tasks),
            *(partial(table_marks, self._uri, self._schema, paths, spans, places) for paths in self._files),
        ]
        marks = self._spark.range(0, len(works), 1, len(works)).mapInArrow(partial(_marked, works), MARKS_DDL)
        sums = [sum_of("log").alias("logs"), sum_of("table").alias("tables")]
        bounds = [least_of("hash").alias("least"), most_of("hash").alias("most")]
        found = (
            marks.groupBy("partition", "offset")
            .agg(*sums, *bounds)
            .where("logs <> 1 OR tables <> 1 OR least <> most")
            .select("partition", "offset", "logs", "tables")
            .orderBy("partition", "offset")
            .limit(NAMED_MAX + 1)
        )
        return [Difference(*row) for row in found.collect()]

    def _layers(self, spans: Mapping[int, Sequence[Span]]) -> Iterable[Spans]:
        """Groups the ranges, as a plan has one for each partition: the first of each, then the second, and so on."""
        for layer in zip_longest(*spans.values()):
            chosen = zip(spans, layer, strict=True)
            yield {TopicPartition(self._topic, each): span for each, span in chosen if span is not None}

    def _tasks(self, spans: Spans) -> list[Task]:
        source = Stream(self._options)
        try:
            return source.tasks(
                {each: first for each, (first, _) in spans.items()}, {each: end for each, (_, end) in spans.items()}
            )
        finally:
            source.close()

    def _counted(self, work: Callable[[T], Side], parts: Sequence[T]) -> list[Side]:
        if not parts:
            return []
        found: list[Side] = self._spark.sparkContext.parallelize(parts, len(parts)).map(work).collect()
        return found


# --- what is compared


def _spans(lake: Lake, checkpoint: Checkpoint, ends: "dict[TopicPartition, int]", client: SyncClient) -> Spans:
    """From the pipeline's start offsets, or the log start offsets if higher, to the end offsets of the table."""
    topic = lake.source.topic
    earliest = client.run(client.admin.offsets(topic, Moment.EARLIEST))
    known = known_beginning(checkpoint)
    began = {} if known is None or known.behind is not None else from_stored(known.offsets)
    firsts = {each: max(earliest[each.partition].offset, began.get(each, 0)) for each in ends}
    return {each: (min(firsts[each], end), end) for each, end in ends.items()}


def _options(project: Project, lake: Lake, checkpoint: Checkpoint, slots: int) -> SourceOptions:
    given = source_options(project.cluster, lake, Beginning({}, None), checkpoint, slots)
    given |= {"startingOffsets": "earliest", "on_gap": "fail", "minPartitions": str(slots)}
    given.pop("dlq_topic", None)
    return stream_options({name.lower(): value for name, value in given.items()})


def _groups(files: Sequence[DataFile]) -> list[list[str]]:
    groups: list[list[str]] = []
    held_bytes = GROUP_BYTES
    for each in files:
        if held_bytes >= GROUP_BYTES:
            groups.append([])
            held_bytes = 0
        groups[-1].append(each.path)
        held_bytes += each.size_bytes
    return groups


# --- tasks

Work = Callable[[], "Iterator[pa.RecordBatch]"]


def _log_task(task: Task, options: SourceOptions, decoder: "Decoder") -> Side:
    return log_side(read_task(task, options), decoder)


def _table_task(paths: list[str], uri: str, schema: "pa.Schema", spans: Spans) -> Side:
    return table_side(uri, schema, paths, spans)


def _log_marks(
    task: Task, options: SourceOptions, decoder: "Decoder", places: frozenset[Place]
) -> "Iterator[pa.RecordBatch]":
    return log_marks(read_task(task, options), decoder, places)


def _marked(works: Sequence[Work], numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Runs the works whose numbers are the rows."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from works[number]()


class Audits:
    """A thread for each audit, beside the streams; reports a line after each run."""

    def __init__(
        self, spark: "SparkSession", project: Project, audits: Sequence[Audit], told: Callable[[str, str], None]
    ) -> None:
        self._spark = spark
        self._project = project
        self._told = told
        self._over = threading.Event()
        for each in audits:
            threading.Thread(target=self._run, args=(each,), name=f"penstock-{each.name}", daemon=True).start()

    def close(self) -> None:
        """Lets no further audit start."""
        self._over.set()

    def _run(self, audit: Audit) -> None:
        while not self._over.wait(audit.trigger_ms / 1000):
            try:
                self._told(audit.name, audit_once(self._spark, self._project, audit).line(audit.name))
            except Exception as error:
                if not self._over.is_set():
                    log.warning("%s", audit.name, exc_info=True)
                    self._told(audit.name, f"{audit.name}: {error}")
