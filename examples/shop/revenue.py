"""What the shop earned on each day: orders and payments, joined by Spark, as a Delta table of its own.

    python revenue.py lake

Spark reads the tables without any jar: delta-rs says which files make up a table, and they are plain Parquet.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

SQL = """
    SELECT payments.day, count(*) AS payments, sum(payments.value.amount_cents) AS revenue_cents
    FROM payments JOIN orders ON payments.value.order_id = orders.value.order_id
    GROUP BY payments.day
    ORDER BY payments.day
"""
VIEW = "daily_revenue"


def table(spark: SparkSession, path: Path) -> DataFrame:
    """A Delta table as it is now."""
    return spark.read.option("basePath", str(path)).parquet(*DeltaTable(path).file_uris())


def daily_revenue(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    """Makes the view anew; its rows."""
    for name in ("orders", "payments"):
        table(spark, lake / name).createOrReplaceTempView(name)
    rows = [row.asDict() for row in spark.sql(SQL).collect()]
    schema = pa.schema([("day", pa.date32()), ("payments", pa.int64()), ("revenue_cents", pa.int64())])
    write_deltalake(lake / VIEW, pa.Table.from_pylist(rows, schema), mode="overwrite")
    return rows


def main() -> None:
    """As a program."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    )
    for row in daily_revenue(spark, Path(sys.argv[1]).resolve()):
        print(f"{row['day']}  {row['payments']:6,} payments  {row['revenue_cents'] / 100:12,.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
