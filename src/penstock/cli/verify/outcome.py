"""The result of `penstock verify`: a verdict on every rule, and a sentence for each violation.

Three results, with their exit codes: all rules were kept (0), one was broken (1), or the run is undecided (2).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from penstock.cli.output import Output, show_json, show_table
from penstock.cli.verify.run import Driven, Load
from penstock.cli.verify.topic import RunTopic
from penstock.verify.report import Report
from penstock.verify.verdicts import verdicts_of

EXIT_CODES: Final = {"kept": 0, "broken": 1, "undecided": 2}
SHOWN_PER_KIND_MAX: Final = 5
MOST_OF_IT: Final = 0.95


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of a run; a history that is only checked has none."""

    topic: RunTopic
    load: Load
    acks: str
    driven: Driven

    def text(self) -> str:
        """For people."""
        topic, driven = self.topic, self.driven
        return (
            f"Topic {topic.name}: {_count(len(topic.partitions), 'partition')}, {_count(topic.replicas, 'replica')} "
            f"of which {topic.in_sync} must be in sync. Client {driven.client}, acks={self.acks}.\n"
            f"{self.load.seconds:g} s: {driven.sent:,} records sent, {driven.acknowledged:,} acknowledged; "
            f"the longest wait for an answer was {driven.longest_wait_s:.1f} s.{self._shortfall()}"
        )

    def _shortfall(self) -> str:
        """A note if fewer records were sent than requested: writers wait while too many records are in flight."""
        wanted = self.load.seconds * self.load.rate
        if self.driven.sent >= MOST_OF_IT * wanted:
            return ""
        return f" --rate asked for {wanted:,.0f} records; the cluster did not take more."

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic.name,
            "partitions": len(self.topic.partitions),
            "replicas": self.topic.replicas,
            "min_insync_replicas": self.topic.in_sync,
            "client": self.driven.client,
            "acks": self.acks,
            "seconds": self.load.seconds,
            "sent": self.driven.sent,
            "acknowledged": self.driven.acknowledged,
            "longest_wait_s": round(self.driven.longest_wait_s, 3),
        }


@dataclass(frozen=True, slots=True)
class VerifyOutcome:
    """The report of the checker, and the question that remains open."""

    report: Report
    open_question: str | None
    history: Path | None
    """The history file, if it is kept."""
    account: Account | None = None

    @property
    def word(self) -> str:
        """The overall verdict. A broken rule stays broken, however the run ended."""
        if not self.report.is_clean:
            return "broken"
        return "kept" if self.open_question is None else "undecided"

    def show(self, output: Output) -> None:
        """Prints the result, and exits with its code."""
        if output is Output.JSON:
            show_json(self.as_dict())
        else:
            self._show_text()
        if EXIT_CODES[self.word]:
            raise typer.Exit(EXIT_CODES[self.word])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.report.as_dict()
        return {
            "verdict": self.word,
            "open_question": self.open_question,
            "run": None if self.account is None else self.account.as_dict(),
            "counts": found["counts"],
            "rules": [each.as_dict() for each in verdicts_of(self.report)],
            "findings": found["findings"],
            "history": None if self.history is None else str(self.history),
        }

    def _show_text(self) -> None:
        counts = self.report.counts
        if self.account is not None:
            typer.echo(self.account.text())
        typer.echo(
            f"{counts.operations:,} operations of {counts.processes:,} processes; {counts.records_acked:,} records "
            f"acknowledged, {counts.records_polled:,} read."
        )
        typer.echo()
        verdicts = verdicts_of(self.report)
        show_table(
            [
                {
                    "verdict": each.word if not each.broken else "BROKEN",
                    "kind": each.kind.value,
                    "looked_at": each.looked_at,
                    "broken": each.broken,
                    "rule": each.rule,
                }
                for each in verdicts
                if each.looked_at or each.broken
            ]
        )
        if idle := [each.kind.value for each in verdicts if not each.looked_at and not each.broken]:
            typer.echo(f"\nNothing in the history to hold these rules against: {', '.join(idle)}.")
        self._show_findings()
        typer.echo(f"\n{self._conclusion()}")

    def _show_findings(self) -> None:
        shown: dict[str, int] = {}
        for finding in self.report.findings:
            name = finding.kind.value
            shown[name] = shown.get(name, 0) + 1
            if shown[name] == 1:
                typer.echo(f"\n{name} ({finding.severity.value}):")
            if shown[name] <= SHOWN_PER_KIND_MAX:
                typer.echo(f"  {finding.sentence}")
                for operation in finding.operations:
                    typer.echo(f"    {operation}")
            elif shown[name] == SHOWN_PER_KIND_MAX + 1:
                typer.echo("  …")

    def _conclusion(self) -> str:
        again = "" if self.history is None else f" `penstock verify --check {self.history}` checks it again."
        if self.word == "broken":
            times = (f"{kind.value} {_count(count, 'time')}" for kind, count in self.report.anomalies.items())
            return f"BROKEN: {', '.join(times)}; see above.{again}"
        if self.word == "undecided":
            question = str(self.open_question).rstrip(".")
            stop = "" if question.endswith("?") else "."
            return f"UNDECIDED: {question}{stop} Up to there every rule was kept.{again}"
        return "Kept: every rule, in everything that was looked at."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
