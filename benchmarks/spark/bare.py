"""A Python data source that yields ready-made Arrow batches: the most that Spark's engine accepts from Python.

It sends no requests and decodes nothing. Each task makes one batch, with the columns and sizes of the measured topic,
and yields it repeatedly.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.spark.payload import KEY_BYTES, VALUE_BYTES
from penstock.spark.columns import arrow_schema
from penstock.spark.source import TYPES

BATCH_ROWS = 50_000


class BareSource(DataSource):
    """The source; its options are `rows` in total and `tasks`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bare"

    def schema(self) -> str:
        """The same eight columns as our source."""
        return ", ".join(f"{name} {kind}" for name, kind in TYPES.items())

    def reader(self, schema: StructType) -> "BareReader":  # noqa: ARG002 - Spark names it
        """The reader for `spark.read`."""
        return BareReader(int(self.options["rows"]), int(self.options["tasks"]))


class BareReader(DataSourceReader):
    """Yields ready-made batches."""

    def __init__(self, rows: int, tasks: int) -> None:
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """One partition per task, with equal numbers of rows."""
        return [InputPartition(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the same batch until there are enough rows."""
        left = partition.value
        batch = ready_made(BATCH_ROWS)
        while left > 0:
            yield batch if left >= BATCH_ROWS else batch.slice(0, left)
            left -= BATCH_ROWS


def ready_made(rows: int) -> pa.RecordBatch:
    """A batch as our source yields it."""
    schema = arrow_schema(has_headers=True)
    columns = {
        "key": b"k" * KEY_BYTES,
        "value": b"v" * VALUE_BYTES,
        "topic": "records",
        "partition": 0,
        "offset": 5,
        "timestamp": 1_700_000_000_000_000,
        "timestampType": 0,
        "headers": None,
    }
    arrays = [pa.repeat(pa.scalar(columns[field.name], field.type), rows) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
