"""The report of a check: the counts of the history and the findings, as text and as JSON."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.verify.findings import Finding, Findings, Kind, Severity


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of a history: the smaller it is, the less an absence of findings means."""

    operations: int
    ok: int
    failed: int
    unknown: int
    processes: int
    partitions: int
    transactions: int
    records_sent: int
    records_acked: int
    records_polled: int
    """Every record of every poll."""
    records_read: int
    """Distinct offsets that were read."""
    offset_questions: int
    """Requests for the first and last offsets of partitions."""
    watermark_questions: int
    commits: int

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


class Report:
    """See the module."""

    def __init__(self, counts: Counts, findings: Findings) -> None:
        self.counts = counts
        self._findings = findings

    @property
    def findings(self) -> list[Finding]:
        """The first findings of each kind; `anomalies` counts all."""
        return self._findings.kept

    @property
    def is_clean(self) -> bool:
        """Whether no finding fails the run."""
        return not self.anomalies

    @property
    def anomalies(self) -> Counter[Kind]:
        """The number of findings that fail the run, by kind."""
        return self._counted(Severity.FAILS)

    @property
    def notes(self) -> Counter[Kind]:
        """The number of findings that are only noted, by kind."""
        return self._counted(Severity.NOTED)

    def add(self, findings: Iterable[Finding]) -> None:
        """Adds findings of checks that do not use the history, such as those of replicas."""
        self._findings.extend(findings)

    def _counted(self, severity: Severity) -> Counter[Kind]:
        return Counter({kind: count for (kind, found), count in self._findings.counts.items() if found is severity})

    def text(self, findings_per_kind_max: int = 5) -> str:
        """For a terminal."""
        counts = self.counts
        lines = [
            f"{counts.operations:,} operations: {counts.ok:,} ok, {counts.failed:,} failed, {counts.unknown:,} unknown",
            f"{counts.processes:,} processes, {counts.partitions:,} partitions, {counts.transactions:,} transactions",
            f"{counts.records_sent:,} records sent, {counts.records_acked:,} acked, {counts.records_read:,} read",
        ]
        for severity, counted in ((Severity.FAILS, self.anomalies), (Severity.NOTED, self.notes)):
            for kind, count in sorted(counted.items(), key=lambda pair: pair[0].value):
                lines.append(f"{'FAILS' if severity is Severity.FAILS else 'noted'}  {kind.value}: {count:,}")
                shown = [finding for finding in self.findings if finding.kind is kind and finding.severity is severity]
                for finding in shown[:findings_per_kind_max]:
                    lines.append(f"       {finding.sentence}")
                    lines += [f"         {operation}" for operation in finding.operations]
                if count > findings_per_kind_max:
                    lines.append(f"       … and {count - findings_per_kind_max:,} more")
        lines.append("clean" if self.is_clean else f"{self.anomalies.total():,} anomalies")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "is_clean": self.is_clean,
            "counts": self.counts.as_dict(),
            "anomalies": {kind.value: count for kind, count in self.anomalies.items()},
            "notes": {kind.value: count for kind, count in self.notes.items()},
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def json(self) -> str:
        """One JSON document."""
        return json.dumps(self.as_dict(), ensure_ascii=False)
