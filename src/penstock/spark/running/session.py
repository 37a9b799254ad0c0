"""Starts Spark for pipelines: workers with our own Python, times in UTC, and no output of Spark on the terminal.

The output of the JVM and the workers goes to a file beside the checkpoints.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.project.plan import SparkPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "spark.log"
OURS = {
    "spark.master": "spark.master",
    "spark.driver.memory": "spark.memory",
    "spark.executor.memory": "spark.memory",
    "spark.sql.session.timeZone": None,
    "spark.ui.showConsoleProgress": None,
}
"""Settings that the runner makes, each with the key that the file has for it, if any."""
DEFAULTS = {
    "spark.app.name": "penstock",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.python.worker.reuse": "true",
}
LOCAL_DEFAULTS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def settings_of(plan: SparkPlan) -> dict[str, str]:
    """The settings with which Spark is started."""
    memory = {"spark.driver.memory": plan.memory} if is_local(plan.master) else {"spark.executor.memory": plan.memory}
    local = LOCAL_DEFAULTS if is_local(plan.master) else {}
    return {**DEFAULTS, **local, **memory, **plan.conf, "spark.master": plan.master}


def start_session(plan: SparkPlan) -> "SparkSession":
    """Starts a session; the caller stops it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    plan.checkpoints.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAll(list(settings_of(plan).items()))
    with log_path(plan).open("ab") as log:
        # In a process session of its own, so that Ctrl-C reaches only this process and a batch can finish.
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    context = SparkContext(conf=conf, gateway=gateway)
    context.setLogLevel("WARN")
    return SparkSession(context)


def log_path(plan: SparkPlan) -> Path:
    """The file with Spark's output."""
    return plan.checkpoints / LOG
