"""A stream's task on an executor: writes a part of a topic to files of a table."""

from penstock.spark.lake.writing import WritePlan, write
from penstock.spark.options import SourceOptions
from penstock.spark.plan import Task
from penstock.spark.read import read_task


def run_task(task: Task, options: SourceOptions, plan: WritePlan) -> str:
    """Runs a task and returns its report as JSON."""
    return write(read_task(task, options), plan).to_json()
