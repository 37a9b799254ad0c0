"""Short histories: `send` and `poll` that begin and end at once, everything else through the recorder."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from penstock.verify.check import check
from penstock.verify.findings import Kind
from penstock.verify.history import Event
from penstock.verify.recorder import OpenOperation, Recorder
from penstock.verify.report import Report
from penstock.verify.rules import DEFAULT_RULES, Rules

P, Q = "orders-0", "orders-1"


class Story:
    def __init__(self) -> None:
        self.events: list[Event] = []
        ticks = count()
        self.recorder = Recorder.in_memory(lambda: next(ticks), self.events.append)
        self.invoke = self.recorder.invoke

    def begin_send(self, process: str, *values: Any, to: str = P) -> OpenOperation:
        return self.invoke(process, "send", [[to, None, value] for value in values])

    def send(self, process: str, *places: tuple[int, Any], to: str = P) -> None:
        rows = [[to, offset, value] for offset, value in places]
        self.invoke(process, "send", [[to, None, value] for _, value in places]).ok(rows)

    def poll(self, process: str, *places: tuple[int, Any], of: str = P) -> None:
        self.invoke(process, "poll").ok([[of, offset, value] for offset, value in places])

    def begin_txn(self, process: str, *sends: tuple[str, Any]) -> OpenOperation:
        return self.invoke(process, "txn", [["send", partition, None, value] for partition, value in sends])

    def assign(self, process: str, *entries: Any) -> None:
        self.invoke(process, "assign", entries).ok(entries)

    def answer(self, process: str, function: Any, *entries: Sequence[Any]) -> None:
        self.invoke(process, function, [entry[:2] for entry in entries]).ok(entries)

    def commit(self, process: str, *entries: Sequence[Any]) -> None:
        self.invoke(process, "commit", entries).ok(entries)

    def report(self, rules: Rules = DEFAULT_RULES) -> Report:
        return check(self.events, rules)

    def kinds(self, rules: Rules = DEFAULT_RULES) -> set[Kind]:
        """Returns every kind found, whether it fails the run or not."""
        report = self.report(rules)
        return set(report.anomalies) | set(report.notes)


def sent(*places: tuple[str, int | None, Any]) -> list[Any]:
    return [["send", *place] for place in places]


def polled(*places: tuple[str, int, Any]) -> list[Any]:
    return [["poll", [list(place) for place in places]]]
