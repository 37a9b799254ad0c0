"""A history: client operations and their outcomes, one JSON line per event, in order of time.

Every operation is an `invoke` and, unless its process died, a completion: `ok`, `fail` (it definitely did not happen)
or `info` (unknown). One clock orders all events, so that "before" is exact. docs/verify.md describes the fields.
"""

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Partition: TypeAlias = str | int
Value: TypeAlias = str | int
Process: TypeAlias = str | int

EventType: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Function: TypeAlias = Literal[
    "send",
    "poll",
    "txn",
    "assign",
    "subscribe",
    "commit",
    "fetch_committed",
    "list_offsets",
    "high_watermark",
    "crash",
]

TYPES = frozenset({"invoke", "ok", "fail", "info"})
FUNCTIONS = frozenset(Function.__args__)  # type: ignore[attr-defined]


class HistoryError(Exception):
    """The history itself is malformed, so that nothing can be concluded from it."""


class BadLine(HistoryError):
    """A line that is not an event."""

    def __init__(self, line_number: int, reason: str) -> None:
        super().__init__(f"line {line_number}: {reason}")
        self.line_number = line_number


class BadEvent(HistoryError):
    """An event that does not fit the ones before it, or whose value has the wrong shape."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"event {index}: {reason}")
        self.index = index


@dataclass(slots=True)
class Event:
    """One line of a history."""

    index: int
    time_ns: int
    process: Process
    type: EventType
    function: Function
    value: list[Any] | None = None
    operation: int | None = None
    """In a completion: the index of its invoke. Without it, the process's oldest open invoke of that function."""
    error: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    client: str | None = None
    rebalanced: list[Partition] | None = None
    """In the completion of a poll or transaction: partitions that were assigned or revoked meanwhile."""


_FIELDS = (
    ("i", "index"),
    ("t", "time_ns"),
    ("p", "process"),
    ("type", "type"),
    ("f", "function"),
    ("value", "value"),
    ("op", "operation"),
    ("err", "error"),
    ("pid", "producer_id"),
    ("epoch", "producer_epoch"),
    ("client", "client"),
    ("rebalanced", "rebalanced"),
)
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_decode = json.JSONDecoder().raw_decode


def line_of(event: Event) -> str:
    """The event as a line, with its newline."""
    fields = {short: found for short, name in _FIELDS if (found := getattr(event, name)) is not None}
    return _encode(fields) + "\n"


def read_history(lines: Iterable[str]) -> Iterator[Event]:
    """Parses the events of a file or of any lines. A last line that was cut off by a crash is skipped."""
    for number, line in enumerate(lines, 1):
        try:
            fields, end = _decode(line)
            if end < len(line) - 1 and not line[end:].isspace():
                raise ValueError("something follows the object")
        except ValueError as trouble:
            if line.isspace():
                continue
            if line.endswith("\n"):
                raise BadLine(number, f"not JSON: {trouble}") from None
            return  # Only the last line of a file has no newline: its writer died.
        yield _event_of(number, fields)


def _event_of(number: int, fields: Any) -> Event:
    if type(fields) is not dict:
        raise BadLine(number, "not an object")
    get = fields.get
    try:
        event = Event(fields["i"], fields["t"], fields["p"], fields["type"], fields["f"], get("value"), get("op"))
    except KeyError as missing:
        raise BadLine(number, f"without {missing}") from None
    if len(fields) > 7 or event.value is None or event.operation is None:
        event.error, event.producer_id, event.producer_epoch = get("err"), get("pid"), get("epoch")
        event.client, event.rebalanced = get("client"), get("rebalanced")
    if type(event.index) is not int or type(event.time_ns) is not int or type(event.process) not in (str, int):
        raise BadLine(number, '"i" and "t" are integers, "p" is a name or a number')
    if event.type not in TYPES or event.function not in FUNCTIONS:
        raise BadLine(number, f"unknown type {event.type!r} or function {event.function!r}")
    if type(event.value) is not list and event.value is not None:
        raise BadLine(number, '"value" is not a list')
    return event


def merge_histories(*histories: Iterable[Event]) -> Iterator[Event]:
    """Merges histories recorded with one clock. At equal times invokes come first, so that no order is implied."""
    renumbered: dict[tuple[int, int], int] = {}
    sources = [_numbered(number, history) for number, history in enumerate(histories)]
    moments = heapq.merge(*sources, key=lambda pair: (pair[1].time_ns, pair[1].type != "invoke"))
    for index, (source, event) in enumerate(moments):
        operation = event.operation
        if event.type == "invoke":
            renumbered[source, event.index] = index
        elif operation is not None:
            operation = renumbered.pop((source, operation), operation)
        yield replace(event, index=index, operation=operation)


def _numbered(number: int, history: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    return ((number, event) for event in history)
