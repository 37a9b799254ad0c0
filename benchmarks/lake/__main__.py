"""Benchmarks copying a topic to a Delta table: our lake and Spark's Kafka connector with delta-spark, in turn.

    python -m benchmarks.lake [--records 10000000] [--rounds 3] [--record]

Both run in one session. `--record` writes docs/results/lake.json and lake.md; it requires committed code.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.lake import payload, results
from harness import maven
from harness.penstock_node import PenstockNode
from harness.spark import delta_session, spark_session
from penstock.client.blocking import SyncClient
from penstock.spark.lake.table import live_files, open_table
from penstock.spark.project.plan import Project, project_of
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.lake_stream import LakeStream

TOPIC = "records"
PARTITIONS = 4
OURS, THEIRS = "penstock", "connector"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    **delta_session.SETTINGS,
}


class Contest:
    """One session, one topic, both contenders."""

    def __init__(self, directory: Path, bootstrap: str, records: int) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        connector = sorted((maven.build(spark_session.PROJECT) / "lib").glob("*.jar"))
        builder = SparkSession.builder.master("local[2]").config(
            "spark.jars", ",".join(map(str, [*connector, *delta_session.jars()]))
        )
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self._directory = directory
        self._bootstrap = bootstrap
        self._records = records

    def run(self, contender: str, number: int) -> float:
        """Seconds from the start of a query to its end, when all records are in the table."""
        place = self._directory / f"{contender}-{number}"
        began_s = time.perf_counter()
        (self._ours if contender == OURS else self._theirs)(place)
        took_s = time.perf_counter() - began_s
        count = self.spark.read.format("delta").load(str(place / "table")).count()
        assert count == self._records, f"{contender} has written {count} rows"
        return took_s

    def project(self, place: Path) -> Project:
        """The project that a user would describe in penstock.yml."""
        lake = {"kind": "lake", "from": {"topic": TOPIC}, "to": {"delta": "table"}, "max_batch": "4 GB"}
        described = {"cluster": {"bootstrap": self._bootstrap}, "pipelines": {"lake": lake}}
        return project_of(described, place / "penstock.yml")

    def _ours(self, place: Path) -> None:
        project = self.project(place)
        checkpoint = Checkpoint(project.checkpoint("lake"))
        with SyncClient(self._bootstrap) as client:
            lake = project.lake("lake")
            stream = LakeStream(self.spark, project.cluster, lake, checkpoint, client=client, may_adopt=False)
            stream.start(is_once=True).awaitTermination()
            stream.close()

    def _theirs(self, place: Path) -> None:
        """Runs the stream as Spark's and Delta's documentation show it, with the same columns."""
        options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        frame = self.spark.readStream.format("kafka").options(**options).option("includeHeaders", "true").load()
        writer = frame.selectExpr("*", "to_date(timestamp) AS day").writeStream.format("delta").partitionBy("day")
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        writer.start(str(place / "table")).awaitTermination()


def measure(directory: Path, records: int, rounds: int) -> dict[str, Any]:
    """Seconds of each round, and file counts and sizes of the tables."""
    node_place = directory / "node"
    node_place.mkdir()
    with PenstockNode(node_place) as node:
        with SyncClient(node.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        payload.produce(node.bootstrap, TOPIC, records, PARTITIONS)
        contest = Contest(directory, node.bootstrap, records)
        seconds: dict[str, list[float]] = {OURS: [], THEIRS: []}
        sizes: dict[str, dict[str, int]] = {}
        for number in range(rounds + 1):
            for contender, taken in seconds.items():
                took_s = contest.run(contender, number)
                print(f"{contender:9} {took_s:6.2f} s {records / took_s / 1e6:5.2f} M rows/s", flush=True)
                if number:  # the first round warms up
                    taken.append(took_s)
                made = directory / f"{contender}-{number}"
                sizes[contender] = table_sizes(made / "table")
                shutil.rmtree(made)
        contest.spark.stop()
    return {
        "records": records,
        "value_bytes": payload.VALUE_BYTES,
        "partitions": PARTITIONS,
        "seconds": seconds,
        "files": sizes,
    }


def table_sizes(table: Path) -> dict[str, int]:
    """Number and total size of a table's files."""
    found = open_table(str(table))
    assert found is not None
    files = live_files(found)
    return {"count": len(files), "bytes": sum(each.size_bytes for each in files)}


def main() -> None:
    """Measures, and prints or records the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.record:
        results.check_recordable()
    with tempfile.TemporaryDirectory(prefix="penstock-lake-") as directory:
        found = measure(Path(directory), options.records, options.rounds)
    if options.record:
        results.record(found)
    else:
        print("\n".join(results.tables(found)))


if __name__ == "__main__":
    main()
