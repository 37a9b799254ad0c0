"""Helpers of rows report their failures: a program that dies or fails, a missing command."""

import gc
import os
import sys
import threading
import time

import pytest

from harness import answerer
from harness.answerer import Answerer, Failed
from harness.spark.spark_answerer import TOO_SLOW, SparkAnswerer
from penstock.testing.node import NodeThread
from tests.compatibility import debian
from tests.compatibility.left_clients import end_left_clients
from tests.compatibility.rows.kafka_python import KafkaPythonMember
from tests.compatibility.rows.row import Joining

ECHO = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"error": "Odd", "message": "no"} if question["command"] == "fail" else question), flush=True)
"""


def test_questions_are_answered_in_order_and_a_failure_ends_nothing() -> None:
    program = Answerer([sys.executable, "-c", ECHO])
    try:
        assert program.ask("echo", number=1) == {"command": "echo", "number": 1}
        with pytest.raises(Failed, match="Odd: no") as failed:
            program.ask("fail")
        assert failed.value.kind == "Odd"
        assert program.ask("echo", number=2)["number"] == 2
    finally:
        program.close()


def test_a_program_that_dies_is_shown_with_its_last_words() -> None:
    program = Answerer([sys.executable, "-c", "import sys; sys.exit('I am out of memory')"])
    try:
        for _ in range(2):
            with pytest.raises(Failed, match="I am out of memory"):
                program.ask("anything", long="x" * 1_000_000)
    finally:
        program.close()


def test_a_program_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answerer, "ANSWER_TIMEOUT_S", 0.2)
    program = Answerer([sys.executable, "-c", "import time; time.sleep(60)"])
    began = time.monotonic()
    try:
        with pytest.raises(Failed, match="Died"):
            program.ask("anything")
    finally:
        program.close()
    assert time.monotonic() - began < 30


def test_who_may_not_install_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(debian.Missing, match="'apt-get install penstock-none' as root"):
        debian.command("penstock-none", "penstock-none")


def test_a_client_that_was_left_running_is_ended_with_its_sockets() -> None:
    node = NodeThread({})
    node.start()
    member = KafkaPythonMember(Joining(node.bootstrap, "left", "left"))
    node.stop()
    time.sleep(1)  # it tries in vain to reconnect meanwhile
    end_left_clients()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-io-")]
    del member
    gc.collect()  # a socket that is still open would cause a warning, and so an error


SLOW_AT_FIRST = """
import json, sys
for number, _ in enumerate(sys.stdin):
    answer = {"number": number} if number == 2 else {"error": "Slow", "message": sys.argv[1]}
    print(json.dumps(answer), flush=True)
"""


def test_what_was_too_slow_for_spark_is_asked_once_more() -> None:
    program = SparkAnswerer([sys.executable, "-c", SLOW_AT_FIRST, TOO_SLOW])
    try:
        assert program.ask("anything") == {"number": 2}
    finally:
        program.close()


def test_any_other_failure_of_spark_is_one() -> None:
    program = SparkAnswerer([sys.executable, "-c", SLOW_AT_FIRST, "no such table"])
    try:
        with pytest.raises(Failed, match="no such table"):
            program.ask("anything")
    finally:
        program.close()
