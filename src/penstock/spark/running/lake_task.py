"""What runs on executors: a part of a topic becomes files of a table. The only module that Spark's workers ask for."""

from penstock.spark.lake.writing import WritePlan, write
from penstock.spark.options import SourceOptions
from penstock.spark.plan import Task
from penstock.spark.read import read_task


def run_task(task: Task, options: SourceOptions, plan: WritePlan) -> str:
    """The report, as it travels."""
    return write(read_task(task, options), plan).to_json()
