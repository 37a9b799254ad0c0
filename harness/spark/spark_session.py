"""Starts Spark with its own Kafka connector: pyspark from pip, the connector from Maven, in a process of its own."""

import os
import sys
from pathlib import Path

from harness import maven
from harness.spark.shared_classes import with_classes
from harness.spark.spark_answerer import SparkAnswerer

PROJECT = Path(__file__).parent / "connector"


def start() -> SparkAnswerer:
    """Starts a session; its commands are in `connector/session.py`."""
    jars = sorted((maven.build(PROJECT) / "lib").glob("*.jar"))
    return SparkAnswerer([sys.executable, str(PROJECT / "session.py"), *map(str, jars)], with_classes(os.environ))
