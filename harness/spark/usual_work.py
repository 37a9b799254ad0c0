"""A program that does what our tests do with Spark: a batch and a stream of our source, files, joins and sums.

It ends when its Java has ended. `shared_classes.py` has Java archive the classes that this loads.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from harness.penstock_node import PenstockNode
from harness.spark.topics import Topics
from penstock.client.blocking import SyncClient

TIMEOUT_S = 300
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


def _started(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _read(spark: SparkSession, options: dict[str, str], directory: Path) -> None:
    """Reads a batch to files, and a stream."""
    records = spark.read.format("penstock").options(**options).load()
    decoded = records.selectExpr("partition", "offset", "timestamp", "from_json(string(value), 'n BIGINT').n AS n")
    decoded.write.partitionBy("partition").parquet(str(directory / "table"))

    def keep(frame: DataFrame, _batch: int) -> None:
        frame.collect()
        frame.rdd.getNumPartitions()

    stream = spark.readStream.format("penstock").options(**options, startingOffsets="earliest").load().writeStream
    kept = stream.foreachBatch(keep).option("checkpointLocation", str(directory / "checkpoint"))
    assert kept.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)


def _ask(spark: SparkSession, directory: Path) -> None:
    """Runs queries over the files, over data from the driver, and with Python in tasks."""
    table = spark.read.parquet(str(directory / "table"))
    table.createOrReplaceTempView("records")
    marks = spark.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, "id BIGINT").withColumnRenamed("id", "offset")
    joined = table.join(marks, "offset").groupBy("partition", "offset").agg({"timestamp": "max", "n": "sum"})
    joined.where("offset > 1").orderBy("partition", "offset").limit(10).collect()
    spark.sql("SELECT date(timestamp) AS day, count(DISTINCT partition, offset) FROM records GROUP BY 1").collect()
    spark.createDataFrame([(b"key", None)], "key BINARY, value BINARY").collect()
    spark.sparkContext.parallelize(range(4), 2).map(str).collect()


def main() -> None:
    """Runs all steps."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spark = _started("local[2]")
        java = spark.sparkContext._gateway.proc
        with PenstockNode(directory) as node, SyncClient(node.bootstrap) as client:
            topics = Topics(node.bootstrap, client)
            topic = topics.create()
            topics.fill(topic, range(20))
            _read(spark, topics.options(topic), directory)
        _ask(spark, directory)
        spark.stop()
        _started("local-cluster[1,1,512]").stop()  # with a Master and a Worker
        java.stdin.close()
        sys.exit(java.wait(TIMEOUT_S))


if __name__ == "__main__":
    main()
