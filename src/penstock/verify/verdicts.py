"""Verdicts rule by rule: the text of each rule, how much of the history it was checked on, and how often it was broken.

A rule that applied to nothing in the history is neither kept nor broken: the absence of findings proves nothing then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from penstock.verify.findings import Kind
from penstock.verify.report import Counts, Report

_acked: Final = attrgetter("records_acked")
_polled: Final = attrgetter("records_polled")
_read: Final = attrgetter("records_read")
_failed: Final = attrgetter("failed")
_transactions: Final = attrgetter("transactions")
_watermarks: Final = attrgetter("watermark_questions")


def _nothing(_counts: Counts) -> int:
    """For rules that do not apply to a plain history."""
    return 0


RULES: Final[Mapping[Kind, tuple[str, Callable[[Counts], int]]]] = {
    Kind.LOST_WRITE: ("nothing acknowledged is missing below what was read", _acked),
    Kind.UNSEEN: ("all that was acknowledged or read is there in the end", _acked),
    Kind.DUPLICATE: ("every record is in the log once", _read),
    Kind.INCONSISTENT_OFFSETS: ("an offset holds one record, whoever reads it", _polled),
    Kind.PHANTOM_READ: ("nothing is read that nobody sent", _read),
    Kind.FUTURE_READ: ("nothing is read before it was sent", _read),
    Kind.ABORTED_READ: ("nothing is read whose send failed", _failed),
    Kind.INT_NONMONOTONIC_SEND: ("the records of one send keep their order", _acked),
    Kind.NONMONOTONIC_SEND: ("the sends of one producer keep their order", _acked),
    Kind.REALTIME_ORDER: ("what was acknowledged before another send began lies before it", _acked),
    Kind.INT_NONMONOTONIC_POLL: ("no poll goes back", _polled),
    Kind.NONMONOTONIC_POLL: ("no reader goes back", _polled),
    Kind.INT_POLL_SKIP: ("no poll leaves out what another reader got", _polled),
    Kind.POLL_SKIP: ("no reader leaves out what another one got", _polled),
    Kind.LISTED_OFFSET_REGRESS: ("the first and the last offset never go back", attrgetter("offset_questions")),
    Kind.HIGH_WATERMARK_REGRESS: ("the high watermark never goes back", _watermarks),
    Kind.STUCK_LSO: ("the last stable offset arrives at the high watermark", _watermarks),
    Kind.OFFSET_COMMIT_REGRESS: ("no committed offset is forgotten", attrgetter("commits")),
    Kind.PRECOMMITTED_READ: ("no transaction reads what it has sent itself", _transactions),
    Kind.TORN_TRANSACTION: ("a transaction is visible as a whole or not at all", _transactions),
    Kind.G1C: ("transactions do not read from each other in a circle", _transactions),
    Kind.G1C_REALTIME: ("no transaction knows what began after it had ended", _transactions),
    Kind.G1C_WITH_WRITES: ("reads and writes of transactions form no circle (only noted)", _transactions),
    Kind.G0: ("writes of transactions form no circle (only noted)", _transactions),
    Kind.PIPELINE_NOT_ONCE: ("every input has one output", _nothing),
    Kind.REPLICA_DIVERGENCE: ("replicas are equal", _nothing),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one rule."""

    kind: Kind
    rule: str
    looked_at: int
    """The number of records, requests or transactions that the rule was checked on."""
    broken: int
    """The number of violations."""

    @property
    def word(self) -> str:
        """The verdict in a word: broken, kept, or not looked at."""
        if self.broken:
            return "broken"
        return "kept" if self.looked_at else "not looked at"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind.value,
            "rule": self.rule,
            "verdict": self.word,
            "looked_at": self.looked_at,
            "broken": self.broken,
        }


def verdicts_of(report: Report) -> list[Verdict]:
    """The verdict on every rule."""
    anomalies = report.anomalies
    return [Verdict(kind, rule, measure(report.counts), anomalies[kind]) for kind, (rule, measure) in RULES.items()]
