"""Runs pipelines in the foreground: starts Spark, shows a line for each pipeline, and ends in order."""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

import typer

from penstock.cli.errors import Failed
from penstock.cli.output import Output
from penstock.spark.lake.audit_text import report
from penstock.spark.lake.auditing import Verdict
from penstock.spark.project.plan import Audit, Lake, Pipeline, Project
from penstock.spark.running.audits import Audits, audit_once
from penstock.spark.running.checks import lake_findings, machine_findings
from penstock.spark.running.cluster_checks import cluster_findings, schema_finding
from penstock.spark.running.line import progress_line
from penstock.spark.running.run import OVER, State, Status
from penstock.spark.running.runner import Runner
from penstock.spark.running.session import log_path, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.live import Live

PLAIN_S = 10.0
"""The shortest time between two lines of a pipeline where stdout is not a terminal."""


def run_pipelines(
    project: Project, pipelines: Sequence[Pipeline], *, is_once: bool, may_adopt: bool, output: Output
) -> None:
    """Runs pipelines until they are stopped, or have finished."""
    lakes = [each for each in pipelines if isinstance(each, Lake)]
    audits = [each for each in pipelines if isinstance(each, Audit)]
    check(project, lakes, may_adopt=may_adopt)
    typer.echo(f"Starting Spark ({project.spark.master}); what it says goes to {log_path(project.spark)}.", err=True)
    spark = start_session(project.spark)
    try:
        with Display(output) as display:
            ended = run_lakes(spark, project, lakes, audits, display, is_once=is_once, may_adopt=may_adopt)
        verdicts = {each.name: audit_once(spark, project, each) for each in audits} if is_once else {}
    finally:
        spark.stop()
    tell(ended, verdicts, output)
    if unfinished := [sentence for each in ended if (sentence := shortfall(each)) is not None]:
        raise Failed("; ".join(unfinished))
    if wrong := [name for name, verdict in verdicts.items() if verdict.differing]:
        raise Failed(f"{', '.join(wrong)}: the table is not the topic")


def shortfall(status: Status) -> str | None:
    """Why a run has not ended well; None if it has."""
    reason = None if status.failure is None else status.failure.sentence.rstrip(".")
    match status.state:
        case State.DONE:
            return None
        case State.FAILED:
            return f"{status.name}: {reason}"
        case State.BROKER_AWAY:
            why = reason or (status.broker_error or "it has not answered for some seconds").rstrip(".")
            return (
                f"{status.name}: it was stopped while it waited for the broker ({why}), and the topic may have more "
                "records; run it again when the broker is back"
            )
    return f"{status.name}: it was stopped before it could be tried again ({reason}); run it again"


def tell(ended: Sequence[Status], verdicts: Mapping[str, Verdict], output: Output) -> None:
    """Prints the results."""
    if output is Output.TABLE:
        for each in ended:
            typer.echo(audit_line(each))
        for name, verdict in verdicts.items():
            typer.echo(report(verdict, name))
        return
    for name, verdict in verdicts.items():
        differences = [{"kind": each.kind, **each._asdict()} for each in verdict.differences]
        typer.echo(json.dumps({"name": name, "audit": verdict.line(name), "differences": differences}))


def check(project: Project, lakes: Sequence[Lake], *, may_adopt: bool) -> None:
    """Fails at once for problems that would otherwise appear after half a minute.

    Topics are left out: a program that is started beside the run may still be creating them.
    """
    found = [*machine_findings(project), *map(schema_finding, lakes)]
    if not may_adopt:
        found += [finding for lake in lakes for finding in lake_findings(project, lake)]
    for finding in chain(found, cluster_findings(project, [])):
        if not finding.is_well:
            end = "" if finding.found.endswith("?") else "."
            raise Failed(f"{finding.check}: {finding.found}{end} To do: {finding.fix}")


def run_lakes(
    spark: "SparkSession",
    project: Project,
    lakes: Sequence[Lake],
    audits: Sequence[Audit],
    display: "Display",
    *,
    is_once: bool,
    may_adopt: bool,
) -> list[Status]:
    """Runs lakes, with audits beside them; returns how the lakes ended."""
    runner = Runner(spark, project, lakes, is_once=is_once, may_adopt=may_adopt, is_alone=not audits)

    def stop(_number: int, _frame: FrameType | None) -> None:
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    beside = Audits(spark, project, [] if is_once else audits, display.note)
    try:
        return runner.run(display.show)
    finally:
        beside.close()


def audit_line(status: Status) -> str:
    """Accounts for all offsets read: as rows, as bad records, or as offsets without a record."""
    empty = status.offsets - status.rows - status.bad
    return (
        f"{status.name}: {status.offsets:,} offsets read = {status.rows:,} rows + {status.bad:,} bad + "
        f"{empty:,} without a record"
    )


def line_of(status: Status) -> str:
    """The progress of a pipeline in a line."""
    note = ""
    if status.failure is not None:
        note = f"{_outcome(status.state)}: {status.failure.sentence}"
    elif status.broker_error is not None and status.state not in OVER:
        note = status.broker_error
    return progress_line(
        status.name, status.reading, batch=status.batch, batch_s=status.batch_s, bad=status.bad, note=note
    )


def _outcome(state: State) -> str:
    """What follows from a failure."""
    match state:
        case State.FAILED | State.DONE:
            return "stopped"
        case State.RUNNING:
            return "tried again after"
    return "again soon"


class Display:
    """Shows live lines on a terminal, and appends lines otherwise."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._live: Live | None = None
        self._shown: dict[str, tuple[float, int | None, State, str]] = {}
        self._notes: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._output is Output.TABLE and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, statuses: list[Status]) -> None:
        """Shows the progress of all pipelines."""
        if self._live is not None:
            from rich.text import Text

            lines = [*map(line_of, statuses), *self._notes.values()]
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
            return
        for each in statuses:
            self._follow(each)

    def note(self, name: str, line: str) -> None:
        """Shows the latest result of an audit."""
        self._notes[name] = line
        if self._live is None:
            typer.echo(json.dumps({"name": name, "audit": line}) if self._output is Output.JSON else line)
            sys.stdout.flush()

    def _follow(self, status: Status) -> None:
        now_s = time.monotonic()
        failure = "" if status.failure is None else status.failure.sentence
        shown_s, batch, state, told = self._shown.get(status.name, (0.0, None, State.RUNNING, ""))
        is_due = self._output is Output.JSON or now_s - shown_s >= PLAIN_S
        if (state, told) != (status.state, failure) or (status.batch != batch and is_due):
            self._shown[status.name] = (now_s, status.batch, status.state, failure)
            typer.echo(_json(status) if self._output is Output.JSON else line_of(status))
            sys.stdout.flush()


def _json(status: Status) -> str:
    found = asdict(status)
    found["state"] = status.state.value
    found["percent"] = status.reading.percent
    return json.dumps(found)
