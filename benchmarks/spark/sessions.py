"""Spark sessions with both sources, and their options."""

import os
import sys

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.bare import BareSource
from harness import maven
from harness.machine import ROOT
from harness.spark import spark_session

FORMATS = ("penstock", "kafka")


def start(master: str = "local[2]", **settings: str) -> SparkSession:
    """Starts a session with Spark's defaults, but without its UI and with a long network timeout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Executors must be able to import the measured package and this folder.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    jars = sorted((maven.build(spark_session.PROJECT) / "lib").glob("*.jar"))
    builder = SparkSession.builder.master(master).config("spark.jars", ",".join(map(str, jars)))
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Other load on the machine must not end the session.
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
    """Reads all rows and discards them."""
    frame.write.format("noop").mode("overwrite").save()
