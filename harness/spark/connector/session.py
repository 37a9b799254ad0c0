"""A Spark session with Spark's own Kafka connector behind a pipe: JSON requests in, JSON responses out, line by line.

It runs as a separate program, with the paths of the connector's jars as arguments, and imports none of our modules.
"""

import base64
import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

STREAM_TIMEOUT_S = 300
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    # Close clients of a stopped node soon.
    "spark.kafka.producer.cache.timeout": "1s",
    "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
}

Json = dict[str, Any]


class Session:
    """One method per command."""

    def __init__(self, jars: list[str]) -> None:
        builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def version(self) -> Json:
        """Spark's version."""
        return {"version": self._spark.version}

    def write(self, messages: list[list[str | None]], options: dict[str, str]) -> Json:
        """Writes a batch of keys and values, in one task so that they keep their order."""
        rows = [tuple(_bytes(field) for field in message) for message in messages]
        frame = self._spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
        frame.write.format("kafka").options(**options).save()
        return {}

    def read(self, options: dict[str, str]) -> Json:
        """Reads a batch of records."""
        frame = self._spark.read.format("kafka").options(**options).load()
        return {"records": _collected(frame)}

    def copy(self, source: dict[str, str], sink: dict[str, str]) -> Json:
        """Streams the current records of one topic to another; returns the row count of each micro-batch."""
        frame = self._spark.readStream.format("kafka").options(**source).load().select("key", "value")
        query = frame.writeStream.format("kafka").options(**sink).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(STREAM_TIMEOUT_S):
                raise TimeoutError(f"the stream had not ended after {STREAM_TIMEOUT_S} s: {query.status}")
            return {"rows": [progress["numInputRows"] for progress in query.recentProgress]}
        finally:
            query.stop()


def _collected(frame: DataFrame) -> list[Json]:
    rows = frame.selectExpr("offset", "unix_millis(timestamp) AS timestamp_ms", "key", "value").collect()
    return [
        {"offset": row.offset, "timestamp_ms": row.timestamp_ms, "key": _text(row.key), "value": _text(row.value)}
        for row in rows
    ]


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def main() -> None:
    """Answers requests until standard input ends."""
    # Spark's own output must not be taken for a response.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    session = Session(sys.argv[1:])
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer: Json = getattr(session, question.pop("command"))(**question)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
