"""What rows lean on says what is wrong: a program that dies or stumbles, a command that is not there."""

import os
import sys
import time

import pytest

from tests.compatibility import answerer, debian
from tests.compatibility.answerer import Answerer, Failed

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
