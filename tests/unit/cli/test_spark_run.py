"""`penstock spark run` without Spark: what it prints about a run, and how it ends."""

import json
from pathlib import Path

import pytest

from penstock.cli.output import Output
from penstock.cli.spark.run import Display, line_of, shortfall
from penstock.spark.running.cluster_checks import LIMIT_S, TIMEOUT_MS
from penstock.spark.running.failures import Failure
from penstock.spark.running.gauge import Reading
from penstock.spark.running.run import State, Status
from tests.unit.cli.conftest import Penstock

WELL = Reading(5, 0, 0.0, 0.0, 0.0)
AWAY = Reading(5, None, None, 0.0, None, is_broker_away=True)
ACCIDENT = Failure("Python worker failed to connect back", is_final=False)
START_S_MAX = 15


def status(state: State, reading: Reading = WELL, failure: Failure | None = None, why: str | None = None) -> Status:
    return Status("orders_lake", state, reading, 7, 0.2, 5, 0, 5, failure, why)


# --- lines


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (State.WAITING, "again soon: Python worker"),
        (State.RUNNING, "tried again after: Python worker"),
        (State.BROKER_AWAY, "again soon: Python worker"),
        (State.FAILED, "stopped: Python worker"),
    ],
)
def test_only_a_run_that_is_over_is_stopped(state: State, note: str) -> None:
    line = line_of(status(state, failure=ACCIDENT))
    assert note in line
    assert ("stopped" in line) == (state is State.FAILED)


def test_a_broker_that_is_away_is_shown_with_the_reason() -> None:
    line = line_of(status(State.BROKER_AWAY, AWAY, why="127.0.0.1:1 refuses connections"))
    assert "waiting for broker" in line
    assert line.endswith("127.0.0.1:1 refuses connections")
    assert "up to date" not in line


def test_without_a_terminal_a_change_of_state_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for output in (Output.TABLE, Output.JSON):
        display = Display(output)
        for each in (status(State.RUNNING), status(State.BROKER_AWAY, AWAY), status(State.BROKER_AWAY, AWAY)):
            display.show([each])
        display.show([status(State.RUNNING)])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3
        if output is Output.JSON:
            assert [json.loads(line)["state"] for line in lines] == ["running", "waiting for broker", "running"]
            assert json.loads(lines[1])["reading"]["lag"] is None
        else:
            assert ["waiting for broker" in line for line in lines] == [False, True, False]


# --- the end


def test_a_run_that_is_done_lacks_nothing() -> None:
    assert shortfall(status(State.DONE)) is None


@pytest.mark.parametrize(
    ("state", "failure", "why", "sentence"),
    [
        (State.FAILED, Failure("records are gone.", True), None, "orders_lake: records are gone"),
        (State.BROKER_AWAY, None, "no route.", "orders_lake: it was stopped while it waited for the broker (no route)"),
        (State.BROKER_AWAY, None, None, "(it has not answered for some seconds)"),
        (State.WAITING, ACCIDENT, None, "stopped before it could be tried again (Python worker failed to connect"),
    ],
)
def test_any_other_run_does_not_end_well(state: State, failure: Failure, why: str, sentence: str) -> None:
    assert sentence in (shortfall(status(state, AWAY, failure, why)) or "")


# --- the beginning


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.yml"
    path.write_text(
        "cluster: {bootstrap: ['127.0.0.1:1']}\n"
        "pipelines:\n"
        "  orders_lake: {kind: lake, from: {topic: orders}, to: {delta: lake}}\n"
        "  orders_audit: {kind: audit, of: orders_lake, to: {delta: audit}}\n"
    )
    return path


@pytest.mark.parametrize("name", ["orders_lake", "orders_audit"])
def test_a_start_against_a_dead_broker_fails_before_spark_is_started(
    penstock: Penstock, file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("penstock.cli.spark.run.machine_findings", lambda _: [])
    result = penstock("spark", "run", name)
    assert result.code == 1
    assert result.err.startswith("penstock: cluster: no connection to 127.0.0.1:1: ")
    assert "the port right? To do: start one with `penstock dev`" in result.err
    assert (result.out, result.err.count("\n")) == ("", 1)


def test_a_silent_broker_delays_a_start_by_less_than_fifteen_seconds() -> None:
    assert TIMEOUT_MS / 1000 < LIMIT_S < START_S_MAX
