"""What is put together while a command is decided: a desk that is cleared into an outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.coordinator.outcome import Outcome
from penstock.coordinator.ports import Now
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.timers import SESSION, DropTimer, SetTimer, Timer, Timers
from penstock.coordinator.topics import Topics
from penstock.model.ports import Entropy
from penstock.wire.declare import StoredKey, StoredValue


class Ask(NamedTuple):
    """A request, about groups of one shard only, and who sent it in which version."""

    request: Any
    version: int
    client_id: str = ""
    client_host: str = ""


class Replace(NamedTuple):
    """A note: a classic group is now this, with all that its record does not tell; None if it is gone."""

    group_id: str
    group: Any


@dataclass(slots=True)
class View:
    """What decisions are made from besides groups and offsets."""

    settings: GroupSettings
    entropy: Entropy
    timers: Timers
    topics: Topics
    groups: Mapping[str, Any]
    said: Mapping[tuple[str, str], Any]
    """By group and member: what members have said to have (`heartbeats.Saying`)."""
    held_bytes: Callable[[], int]
    """What members of all groups of the coordinator say of themselves."""


class Work:
    """One decision under way. Nothing that is put here has happened yet."""

    __slots__ = ("notes", "now", "records", "replies", "view")

    def __init__(self, view: View, now: Now) -> None:
        self.view = view
        self.now = now
        self.records: list[GroupRecord] = []
        self.notes: list[Any] = []
        self.replies: list[tuple[int, Any]] = []

    def record(self, key: StoredKey, value: StoredValue | None) -> None:
        """Something that must survive."""
        self.records.append(GroupRecord(key, value))

    def reply(self, ticket: int, reply: Any) -> None:
        """Somebody is answered."""
        self.replies.append((ticket, reply))

    def set_timer(self, kind: str, group_id: str, member_id: str, after_ms: int) -> None:
        """A timer, that much from now."""
        self.notes.append(SetTimer(Timer(kind, group_id, member_id), self.now.ms + after_ms))

    def drop_timer(self, kind: str, group_id: str, member_id: str = "") -> None:
        """A timer goes, if it is there."""
        self.notes.append(DropTimer(Timer(kind, group_id, member_id)))

    def hear(self, group_id: str, member_id: str, session_ms: int) -> None:
        """A member lives."""
        self.set_timer(SESSION, group_id, member_id, session_ms)

    def outcome(self) -> Outcome:
        """Everything together."""
        return Outcome(tuple(self.records), tuple(self.notes), tuple(self.replies))
