"""Events of groups, as recorded by their coordinators: one small JSON object per event, in a topic of their own.

Records are keyed by group name; within a partition, the events of a group are in order. Writing is best effort: no
request waits for an event, and an event that cannot be written is lost. Readers ignore unknown fields and kinds.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

TOPIC: Final = "__group_events"
VERSION: Final = 2


class EventKind(StrEnum):
    """Kind of an event."""

    JOINED = "joined"
    LEFT = "left"
    TIMED_OUT = "timed-out"
    FENCED = "fenced"
    """Another member took over the instance id, or the member sent a stale epoch."""
    REBALANCE_BEGUN = "rebalance-begun"
    REBALANCE_DONE = "rebalance-done"
    COORDINATOR_CHANGED = "coordinator-changed"
    CONVERTED = "converted"
    """The group changed between the classic and the consumer protocol."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One event. Fields that do not apply are None and are not written."""

    group: str
    kind: EventKind
    at_ms: int
    """Milliseconds since 1970, by the coordinator's clock."""
    protocol: str = "classic"
    """classic or consumer (KIP-848)."""
    epoch: int | None = None
    """The generation of a classic group, or the epoch of a consumer group, after the event."""
    member: str | None = None
    client_id: str | None = None
    host: str | None = None
    instance: str | None = None
    reason: str | None = None
    members: int | None = None
    """Number of members after the event."""
    took_ms: int | None = None
    """For REBALANCE_DONE: time from the start of the rebalance until every member had its assignment."""
    pause_ms: int | None = None
    """For REBALANCE_DONE: the longest time for which a partition that was read before had no reader."""
    broker: int | None = None
    """The coordinator, which recorded the event."""

    def encode(self) -> bytes:
        """Encodes the event as a record value."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({"version": VERSION, **told}, separators=(",", ":"), ensure_ascii=False).encode()


_FIELDS: Final = tuple(GroupEvent.__dataclass_fields__)
_NUMBERS: Final = ("at_ms", "epoch", "members", "took_ms", "pause_ms", "broker")
_PAUSES_SINCE: Final = 2
"""Versions before this one wrote `took_ms` under the name `pause_ms`."""


def decode_event(value: bytes | None) -> GroupEvent | None:
    """Decodes an event; None if the value is not a known event."""
    try:
        told: Any = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("version"), int):
        return None
    if told["version"] < _PAUSES_SINCE:
        told["took_ms"] = told.pop("pause_ms", None)
    known = {name: told[name] for name in _FIELDS if told.get(name) is not None}
    for name, each in known.items():
        if not isinstance(each, int if name in _NUMBERS else str):
            return None
    try:
        return GroupEvent(**{**known, "kind": EventKind(known["kind"])})
    except (KeyError, TypeError, ValueError):
        return None
