"""Starts Spark with its own Kafka connector: pyspark from pip, the connector from Maven, in a process of its own."""

import os
import sys
from pathlib import Path

from tests.compatibility import maven
from tests.compatibility.answerer import Answerer
from tests.spark.shared_classes import with_classes

PROJECT = Path(__file__).parent / "spark"


def start() -> Answerer:
    """A session that answers; the commands are in `spark/session.py`."""
    jars = sorted((maven.build(PROJECT) / "lib").glob("*.jar"))
    return Answerer([sys.executable, str(PROJECT / "session.py"), *map(str, jars)], with_classes(os.environ))
