"""Runs pipelines in the foreground: starts Spark, shows a line for each pipeline, and ends in order."""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

import typer

from penstock.cli.failing import Failed
from penstock.cli.output import Output
from penstock.spark.lake.audit_text import report
from penstock.spark.lake.auditing import Verdict
from penstock.spark.project.plan import Audit, Lake, Pipeline, Project
from penstock.spark.running.audits import Audits, audit_once
from penstock.spark.running.checks import lake_findings, machine_findings
from penstock.spark.running.line import progress_line
from penstock.spark.running.runner import Runner, State, Status
from penstock.spark.running.session import log_path, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.live import Live

PLAIN_S = 10.0
"""Where nobody watches, a line for each pipeline and so many seconds will do."""


def run_pipelines(
    project: Project, pipelines: Sequence[Pipeline], *, is_once: bool, may_adopt: bool, output: Output
) -> None:
    """Until it is stopped, or through."""
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
    if failed := [each for each in ended if each.state is State.FAILED]:
        raise Failed("; ".join(f"{each.name}: {each.failure.sentence.rstrip('.')}" for each in failed if each.failure))
    if wrong := [name for name, verdict in verdicts.items() if verdict.differing]:
        raise Failed(f"{', '.join(wrong)}: the table is not the topic")


def tell(ended: Sequence[Status], verdicts: Mapping[str, Verdict], output: Output) -> None:
    """What came of it."""
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
    """What would go wrong in half a minute goes wrong at once."""
    found = list(machine_findings(project))
    if not may_adopt:
        found += [finding for lake in lakes for finding in lake_findings(project, lake)]
    for finding in found:
        if not finding.is_well:
            raise Failed(f"{finding.check}: {finding.found}. {finding.fix}")


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
    """How they ended."""
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
    """What went in is what came out."""
    empty = status.offsets - status.rows - status.bad
    return (
        f"{status.name}: {status.offsets:,} offsets read = {status.rows:,} rows + {status.bad:,} bad + "
        f"{empty:,} without a record"
    )


def line_of(status: Status) -> str:
    """How a pipeline stands."""
    note = ""
    if status.failure is not None:
        note = f"{'again soon' if status.state is State.WAITING else 'stopped'}: {status.failure.sentence}"
    return progress_line(
        status.name, status.reading, batch=status.batch, batch_s=status.batch_s, bad=status.bad, note=note
    )


class Display:
    """Lines that change where somebody watches, and lines that follow each other where nobody does."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._live: Live | None = None
        self._shown: dict[str, tuple[float, int | None, str]] = {}
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
        """How all of them stand."""
        if self._live is not None:
            from rich.text import Text

            lines = [*map(line_of, statuses), *self._notes.values()]
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
            return
        for each in statuses:
            self._follow(each)

    def note(self, name: str, line: str) -> None:
        """The last that an audit has found."""
        self._notes[name] = line
        if self._live is None:
            typer.echo(json.dumps({"name": name, "audit": line}) if self._output is Output.JSON else line)
            sys.stdout.flush()

    def _follow(self, status: Status) -> None:
        now_s = time.monotonic()
        failure = "" if status.failure is None else status.failure.sentence
        shown_s, batch, told = self._shown.get(status.name, (0.0, None, ""))
        is_due = self._output is Output.JSON or now_s - shown_s >= PLAIN_S
        if failure != told or (status.batch != batch and is_due):
            self._shown[status.name] = (now_s, status.batch, failure)
            typer.echo(_json(status) if self._output is Output.JSON else line_of(status))
            sys.stdout.flush()


def _json(status: Status) -> str:
    found = asdict(status)
    found["state"] = status.state.value
    found["percent"] = status.reading.percent
    return json.dumps(found)
