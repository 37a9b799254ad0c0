"""`format("penstock")`: the classes that Spark calls. Options, planning, queries and reading are in other modules.

Spark creates these objects in several processes and pickles them: they hold options only, and connect on first use.
Nothing heavy is imported here, because Spark imports this module wherever it looks for data sources.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.spark.driver import Stream, batch_tasks
from penstock.spark.offsets import Stored, from_stored, to_stored
from penstock.spark.options import OptionError, SourceOptions, batch_options, check_options, columns_of, stream_options
from penstock.spark.plan import Cuts, Task
from penstock.spark.pushdown import cuts_of
from penstock.spark.read import read_latest, read_task
from penstock.spark.security import read_security

if TYPE_CHECKING:
    from pyarrow import RecordBatch

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
LIMITED = 1
"""A placeholder: Spark cannot combine two limits, so it only shows that there are limits. The options hold them."""


class PenstockSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "penstock"

    def schema(self) -> str:
        """The connector's columns, or some of them."""
        options = check_options(self._options)
        read_security(options.kafka)
        return ", ".join(f"{name} {TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> "BatchReader":
        """For `spark.read`."""
        self._check_schema(schema)
        options = batch_options(self._options)
        return PushdownReader(options) if options.is_pushdown_on else BatchReader(options)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        """For `spark.readStream`."""
        self._check_schema(schema)
        return StreamReader(stream_options(self._options))

    @property
    def _options(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items()}

    def _check_schema(self, schema: StructType) -> None:
        columns = columns_of(self._options)
        if tuple(schema.fieldNames()) != columns:
            raise OptionError(f"The source has columns of its own ({', '.join(columns)}): leave out .schema(…).")


class BatchReader(DataSourceReader):
    """Reads a batch whose offsets are fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cuts: Cuts | None = None

    def partitions(self) -> list[InputPartition]:
        """Plans the tasks, on the driver."""
        return _partitions(batch_tasks(self._options, self._cuts))

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Runs in a task. Spark creates one task without a value if there are no partitions."""
        if partition.value is None:
            return iter(())
        read = read_latest if self._options.is_latest else read_task
        return read(Task._make(partition.value), self._options)


class PushdownReader(BatchReader):
    """A batch reader with filter pushdown. Optional: with it, every batch fails while Spark's own setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Returns all filters, so that Spark applies them again."""
        self._cuts = cuts_of(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches, whose offsets Spark keeps in the checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Stream | None = None

    @property
    def _stream(self) -> Stream:
        if self._opened is None:
            self._opened = Stream(self._options)
        return self._opened

    def initialOffset(self) -> Stored:  # noqa: N802 - Spark's name
        """The start offsets if there is no checkpoint."""
        return to_stored(self._stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The placeholder limit if the options set any limit."""
        options = self._options
        if options.offsets_max is options.offsets_min is options.bytes_max is None:
            return ReadAllAvailable()
        return ReadMaxRows(LIMITED)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Called once, before any other call of an AvailableNow run."""
        self._stream.stop_at_present()

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:  # noqa: N802 - Spark's name
        """The end of the next micro-batch. Spark has recorded everything before `start` as done."""
        has_limits = not isinstance(limit, ReadAllAvailable)
        return to_stored(self._stream.end(from_stored(start), has_limits=has_limits))

    def reportLatestOffset(self) -> Stored | None:  # noqa: N802 - Spark's name
        """The end offsets of the logs, for the query's progress."""
        latest = self._stream.latest
        return None if latest is None else to_stored(latest)

    def partitions(self, start: Stored, end: Stored) -> Sequence[InputPartition]:
        """Plans the tasks of a micro-batch, on the driver."""
        return _partitions(self._stream.tasks(from_stored(start), from_stored(end)))

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Runs in a task, on an object of its own."""
        return read_task(Task._make(partition.value), self._options)

    def commit(self, end: Stored) -> None:
        """Does nothing: Spark calls this only when the next micro-batch starts, after `latestOffset`."""

    def stop(self) -> None:
        """Closes the connection when the query has ended."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _partitions(tasks: Iterable[Task]) -> list[InputPartition]:
    """Wraps tasks as bare tuples, which take half the time to pickle."""
    return [InputPartition(tuple(task)) for task in tasks]
