"""Delta for Spark, from Maven: an independent reader of the tables that our lakes write.

    python -m harness.spark.delta_session TABLE

prints, as JSON, the number of rows, the number of distinct rows, the sum of their offsets, the days and the columns.
"""

import json
import os
import sys
from pathlib import Path

from harness import maven
from harness.spark.standalone import SMALL_JAVA

PROJECT = Path(__file__).parent / "delta"
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # For a small table: by default its log is read in 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
}


def jars() -> list[Path]:
    """The jars that Spark needs for Delta."""
    return sorted((maven.build(PROJECT) / "lib").glob("*.jar"))


def main() -> None:
    """Reads a table and prints its figures."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars())))
    quiet = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
    for name, value in {**SETTINGS, **quiet}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.read.format("delta").load(sys.argv[1])
    sums = "count(*) AS rows", "count(DISTINCT partition, offset) AS distinct", "sum(offset) AS offsets"
    found = frame.selectExpr(*sums).first()
    days = [str(row.day) for row in frame.select("day").distinct().orderBy("day").collect()]
    print(json.dumps({**found.asDict(), "days": days, "columns": frame.columns}))
    spark.stop()


if __name__ == "__main__":
    main()
