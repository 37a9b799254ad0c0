"""A Spark session behind a pipe, with our source as pip installs it and Spark's Kafka connector beside it.

JSON commands in, JSON responses out, line by line. It runs as a program of its own, with the address of the Master (or
local[2]) and the paths of the connector's jars as arguments, and registers nothing: Spark must find the source by
itself.
"""

import base64
import json
import os
import sys
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

QUERY_TIMEOUT_S = 300
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", JAVA),  # as the driver's
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A task that fails once fails the job.
    "spark.task.maxFailures": "1",
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
}

Json = dict[str, Any]


class Session:
    """One method per command."""

    def __init__(self, master: str, jars: list[str]) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master(master).config("spark.jars", ",".join(jars))
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        self._queries: dict[str, StreamingQuery] = {}
        self._rows: dict[str, dict[int, list[Json]]] = {}
        self._gates: dict[str, threading.Semaphore] = {}

    def version(self) -> Json:
        """Spark's version, and the number of executors."""
        executors = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        return {"version": self._spark.version, "executors": executors}

    def configure(self, name: str, value: str) -> Json:
        """Changes a setting of the session."""
        self._spark.conf.set(name, value)
        return {}

    def fields(self, ddl: str) -> Json:
        """Reads a schema in DDL; returns the Arrow type of each field, without what may be null."""
        schema = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
        return {"fields": {each.name: str(each.type).replace(" not null", "") for each in schema}}

    def read(self, format: str, options: dict[str, str], where: str = "true") -> Json:  # noqa: A002 - Spark's word
        """Reads a batch: its rows, its columns, and the number of tasks."""
        frame = self._spark.read.format(format).options(**options).load()
        rows = _collected(frame.where(where))
        tasks = frame.where(where).rdd.getNumPartitions()
        return {"rows": rows, "schema": frame.schema.simpleString(), "tasks": tasks}

    def run(self, format: str, options: dict[str, str], checkpoint: str) -> Json:  # noqa: A002
        """Runs a stream over the present data; returns the rows of each micro-batch, by its number."""
        self.start("once", format, options, checkpoint, available_now=True)
        query = self._queries["once"]
        try:
            if not query.awaitTermination(QUERY_TIMEOUT_S):
                raise TimeoutError(f"the stream had not ended after {QUERY_TIMEOUT_S} s: {query.status}")
        finally:
            query.stop()
        return {"batches": self._rows["once"]}

    def start(
        self,
        name: str,
        format: str,  # noqa: A002
        options: dict[str, str],
        checkpoint: str,
        available_now: bool = False,
        is_held: bool = False,
    ) -> Json:
        """Starts a stream that runs until it is stopped. If it is held, each batch waits for `let`."""
        rows = self._rows[name] = {}
        gate = self._gates[name] = threading.Semaphore(0)

        def keep(frame: DataFrame, batch: int) -> None:
            rows[batch] = _collected(frame)
            if is_held:
                gate.acquire()

        trigger: Json = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        frame = self._spark.readStream.format(format).options(**options).load()
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        self._queries[name] = writer.trigger(**trigger).start()
        return {}

    def process(self, name: str) -> Json:
        """Waits until a stream has read all available data; returns its micro-batches so far."""
        self._queries[name].processAllAvailable()
        progress = self._queries[name].lastProgress
        return {"batches": self._rows[name], "progress": progress and json.loads(progress.json)}

    def standing(self, name: str) -> Json:
        """The last micro-batch that was read, and the query's own progress."""
        if (failure := self._queries[name].exception()) is not None:
            raise failure
        progress = self._queries[name].lastProgress
        return {"batch": max(self._rows[name], default=None), "progress": progress and json.loads(progress.json)}

    def let(self, name: str, batches: int = 1) -> Json:
        """Lets batches of a held stream finish."""
        self._gates[name].release(batches)
        return {}

    def failure(self, name: str) -> Json:
        """Waits until a stream fails, and returns the reason."""
        query = self._queries[name]
        try:
            ended = query.awaitTermination(QUERY_TIMEOUT_S)
        except Exception as error:
            return {"failure": str(error)}
        raise TimeoutError(f"the stream has not failed: {'it ended' if ended else query.status}")

    def stop(self, name: str) -> Json:
        """Ends a stream."""
        self._queries.pop(name).stop()
        return {}


def _collected(frame: DataFrame) -> list[Json]:
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in frame.collect()]


def _plain(value: object) -> object:
    match value:
        case bytes() | bytearray():
            return {"bytes": base64.b64encode(value).decode()}
        case list():
            return [[header.key, _plain(header.value)] for header in value]
        case int() | str() | None:
            return value
    return str(value)


def main() -> None:
    """Answers commands until the input ends."""
    # Spark's own output must not be mistaken for a response.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    session = Session(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer: Json = getattr(session, question.pop("command"))(**question)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
