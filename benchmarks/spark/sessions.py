"""Spark sessions with both sources, and what they are told."""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

from benchmarks.side_by_side.machine import ROOT
from benchmarks.spark.bare import BareSource
from tests.compatibility import maven, spark_session

FORMATS = ("penstock", "kafka")


def start(master: str = "local[2]", **settings: str) -> SparkSession:
    """Defaults, but for pages that nobody looks at."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Executors must find what is measured, and this folder.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    jars = sorted((maven.build(spark_session.PROJECT) / "lib").glob("*.jar"))
    builder = SparkSession.builder.master(master).config("spark.jars", ",".join(map(str, jars)))
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A machine that is busy with something else for a while must not end the session.
        "spark.network.timeout": "30m",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(BareSource)
    return session


def batch(session: SparkSession, form: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """A topic as a batch, with all eight columns."""
    told = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true", **options}
    return session.read.format(form).options(**told).load()


def run(frame: DataFrame) -> None:
    """Reads all of it and keeps nothing."""
    frame.write.format("noop").mode("overwrite").save()
