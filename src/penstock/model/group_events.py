"""What happened to groups, as their coordinators tell: one small JSON object per event, in a topic of their own.

Keyed by the group's name, so that what happened to one group is in order. Best effort: an event that could not be
written is missing, and nobody waits for it. Readers pass over fields and kinds that they do not know.
"""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

TOPIC: Final = "__group_events"
VERSION: Final = 2


class EventKind(StrEnum):
    """What happened."""

    JOINED = "joined"
    LEFT = "left"
    TIMED_OUT = "timed-out"
    FENCED = "fenced"
    """Another took its place, or it came with an epoch that is over."""
    REBALANCE_BEGUN = "rebalance-begun"
    REBALANCE_DONE = "rebalance-done"
    COORDINATOR_CHANGED = "coordinator-changed"
    CONVERTED = "converted"
    """The group speaks the other protocol from now on."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One event. What does not apply is None, and not written."""

    group: str
    kind: EventKind
    at_ms: int
    """Milliseconds since 1970, by the coordinator's clock."""
    protocol: str = "classic"
    """classic or consumer (KIP-848)."""
    epoch: int | None = None
    """The generation of a classic group, the epoch of a consumer group, once the event has happened."""
    member: str | None = None
    client_id: str | None = None
    host: str | None = None
    instance: str | None = None
    reason: str | None = None
    members: int | None = None
    """How many there are, once the event has happened."""
    took_ms: int | None = None
    """Of REBALANCE_DONE: from what began it until every member had its share."""
    pause_ms: int | None = None
    """Of REBALANCE_DONE: the longest that a partition, which had been read, had no reader before it got one again."""
    broker: int | None = None
    """Who coordinates, and tells it."""

    def encode(self) -> bytes:
        """As it lies in the topic."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({"version": VERSION, **told}, separators=(",", ":"), ensure_ascii=False).encode()


_FIELDS: Final = tuple(GroupEvent.__dataclass_fields__)
_NUMBERS: Final = ("at_ms", "epoch", "members", "took_ms", "pause_ms", "broker")
_PAUSES_SINCE: Final = 2
"""Before this version, `pause_ms` was what `took_ms` is."""


def decode_event(value: bytes | None) -> GroupEvent | None:
    """The event, or None if it is none that is understood here."""
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
