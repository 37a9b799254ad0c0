"""Partition offsets never go back (KIP-207), and the last stable offset reaches the high watermark.

A response is a lower bound for the responses to all requests that were sent after it.
"""

from bisect import bisect_left
from typing import Any

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Event, Partition
from penstock.verify.operations import Operation


class _Highest:
    """How the highest returned offset grew: the events and operations that raised it, and to which offset."""

    __slots__ = ("events", "offsets", "operations")

    def __init__(self) -> None:
        self.events: list[int] = []
        self.offsets: list[int] = []
        self.operations: list[Operation] = []

    def before(self, event: int) -> tuple[int, Operation] | None:
        """The highest offset returned before this event, and its operation."""
        place = bisect_left(self.events, event) - 1
        return (self.offsets[place], self.operations[place]) if place >= 0 else None

    def raise_to(self, offset: int, event: int, operation: Operation) -> None:
        """Records a returned offset."""
        if not self.offsets or offset > self.offsets[-1]:
            self.events.append(event)
            self.offsets.append(offset)
            self.operations.append(operation)


class WatermarkWatcher:
    """Watches `list_offsets` ([partition, "earliest" | "latest" | timestamp, offset]) and `high_watermark`.

    Entries of `high_watermark` are [partition, high watermark] or [partition, high watermark, last stable offset].
    The offset of a timestamp may move either way as records arrive late, so only "earliest" and "latest" are checked.
    """

    def __init__(self, settled_after_ns: int | None) -> None:
        self.findings: list[Finding] = []
        self._settled_after_ns = settled_after_ns
        self._highest: dict[tuple[Partition, str], _Highest] = {}
        self._is_settled: set[int] = set()

    def invoked(self, operation: Operation, event: Event) -> None:
        """Notes whether a request was sent after the run had settled."""
        if self._settled_after_ns is not None and event.time_ns >= self._settled_after_ns:
            self._is_settled.add(operation.invoked)

    def completed(self, operation: Operation, event: Event, asked: list[Any]) -> None:
        """Checks the offsets of a response."""
        del asked
        is_settled = operation.invoked in self._is_settled
        self._is_settled.discard(operation.invoked)
        if event.type != "ok":
            return
        for entry in event.value or ():
            if event.function == "list_offsets":
                partition, which, offset = entry
                if which in ("earliest", "latest"):
                    self._compare(Kind.LISTED_OFFSET_REGRESS, partition, which, offset, operation)
            else:
                partition, offset, *stable = entry
                self._compare(Kind.HIGH_WATERMARK_REGRESS, partition, "high watermark", offset, operation)
                if is_settled and stable and stable[0] < offset:
                    sentence = f"The last stable offset of {partition} is stuck at {stable[0]}, below {offset}."
                    self.findings.append(Finding(Kind.STUCK_LSO, sentence, (operation,), partition))

    def _compare(self, kind: Kind, partition: Partition, which: str, offset: int, operation: Operation) -> None:
        if type(offset) is not int:
            raise TypeError(f"{offset!r} is no offset")
        highest = self._highest.setdefault((partition, which), _Highest())
        before = highest.before(operation.invoked)
        if before is not None and offset < before[0]:
            sentence = f"The {which} offset of {partition} went back from {before[0]} to {offset}."
            if kind is Kind.HIGH_WATERMARK_REGRESS:
                sentence = f"The {which} of {partition} went back from {before[0]} to {offset}."
            self.findings.append(Finding(kind, sentence, (before[1], operation), partition))
        highest.raise_to(offset, operation.completed, operation)
