"""Spark's errors are reduced to the one useful sentence, and to whether a retry can help."""

from penstock.spark.lake.commit import CommitRefused
from penstock.spark.running.failures import failure_of

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: Task 0 in
stage 0.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "writing.py", line 96, in _meet
penstock.spark.lake.writing.BadRecord: orders_lake cannot read the record orders[0] at offset 3: the value is not JSON.

    at org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:571)"""
BROKER = """[STREAM_FAILED] Traceback (most recent call last):
  File "cluster.py", line 1, in refresh
penstock.client.errors.Unreachable: no broker of localhost:9092 can be reached: Connection refused
"""
JVM = "[STREAM_FAILED] Query terminated: \njava.lang.IllegalStateException: SparkContext has been shut down"


def test_an_error_of_a_task_that_needs_a_person() -> None:
    found = failure_of(None, RuntimeError(WORKER))
    assert found.is_final
    assert found.sentence == "orders_lake cannot read the record orders[0] at offset 3: the value is not JSON."


def test_an_error_of_the_driver_goes_first() -> None:
    found = failure_of(CommitRefused("the table belongs to another"), RuntimeError(WORKER))
    assert found == ("the table belongs to another", True)


def test_a_broker_that_is_away_may_come_back() -> None:
    found = failure_of(RuntimeError(BROKER))
    assert not found.is_final
    assert not failure_of(RuntimeError("penstock.client.errors.Refused: not authorized")).is_final
    assert "no broker of localhost:9092 can be reached" in found.sentence


def test_two_runs_on_one_checkpoint_need_a_person() -> None:
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7."
    assert failure_of(None, RuntimeError(text)).is_final


def test_whatever_else() -> None:
    assert failure_of(RuntimeError(JVM)) == ("IllegalStateException: SparkContext has been shut down", False)
    assert failure_of(RuntimeError("")) == ("RuntimeError: no text", False)
    assert failure_of(None).sentence == "it ended and gave no reason"
