"""Findings: the kinds of anomalies, which of them fail a run, and an anomaly with its operations."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from penstock.verify.history import Partition
from penstock.verify.operations import Operation


class Severity(Enum):
    """Whether a finding fails the run."""

    FAILS = "fails"
    NOTED = "noted"


class Kind(Enum):
    """The kind of an anomaly, named as Jepsen and Adya name it where they have a name."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    PHANTOM_READ = "phantom-read"
    FUTURE_READ = "future-read"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    REALTIME_ORDER = "realtime-order"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_POLL_SKIP = "int-poll-skip"
    POLL_SKIP = "poll-skip"
    LISTED_OFFSET_REGRESS = "listed-offset-regress"
    HIGH_WATERMARK_REGRESS = "high-watermark-regress"
    OFFSET_COMMIT_REGRESS = "offset-commit-regress"
    STUCK_LSO = "stuck-lso"
    ABORTED_READ = "G1a-aborted-read"
    PRECOMMITTED_READ = "precommitted-read"
    TORN_TRANSACTION = "torn-transaction"
    G1C = "G1c"
    G1C_REALTIME = "G1c-realtime"
    G1C_WITH_WRITES = "G1c-with-ww"
    G0 = "G0"
    PIPELINE_NOT_ONCE = "ctp-exactly-once"
    REPLICA_DIVERGENCE = "replica-divergence"


# Kafka never isolates writes of transactions from each other, so cycles through their order prove nothing.
NOTED_KINDS = frozenset({Kind.G0, Kind.G1C_WITH_WRITES})


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly: a sentence for people, and the operations that prove it."""

    kind: Kind
    sentence: str
    operations: tuple[Operation, ...]
    partition: Partition | None = None
    severity: Severity = Severity.FAILS

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind.value,
            "severity": self.severity.value,
            "sentence": self.sentence,
            "partition": self.partition,
            "operations": [operation.as_dict() for operation in self.operations],
        }


class Findings:
    """Counts every finding and keeps the first few of each kind: one broken disk can lose a million records."""

    def __init__(self, kept_per_kind_max: int, waived: frozenset[Kind] = frozenset()) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[Kind, Severity]] = Counter()
        self._kept_per_kind_max = kept_per_kind_max
        self._noted = NOTED_KINDS | waived

    def extend(self, findings: Iterable[Finding]) -> None:
        """Counts all findings, and keeps those within the limit of their kind."""
        for finding in findings:
            noted = finding.severity is Severity.NOTED or finding.kind in self._noted
            severity = Severity.NOTED if noted else Severity.FAILS
            count = self.counts[finding.kind, severity]
            self.counts[finding.kind, severity] = count + 1
            if count < self._kept_per_kind_max:
                self.kept.append(replace(finding, severity=severity))
