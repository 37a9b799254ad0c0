"""Collects records, changes and replies while a command is decided."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.coordinator.changes import Change, Group, OwnershipReports
from penstock.coordinator.ports import Now
from penstock.coordinator.records import GroupKey, GroupRecord, GroupValue
from penstock.coordinator.requests import GroupReply
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.shard import GroupDecision
from penstock.coordinator.timers import SESSION, DropTimer, SetTimer, Timer, Timers
from penstock.coordinator.topics import Topics
from penstock.model.ports import Entropy


@dataclass(slots=True)
class View:
    """Inputs of decisions."""

    settings: GroupSettings
    entropy: Entropy
    timers: Timers
    topics: Topics
    groups: Mapping[str, Group]
    reports: Mapping[tuple[str, str], OwnershipReports]
    """By group and member: reports of owned partitions."""
    held_bytes: Callable[[], int]
    """Bytes of member metadata in all groups of the coordinator."""


class Work:
    """One decision under way. Nothing in it is applied yet."""

    __slots__ = ("changes", "now", "records", "replies", "view")

    def __init__(self, view: View, now: Now) -> None:
        self.view = view
        self.now = now
        self.records: list[GroupRecord] = []
        self.changes: list[Change] = []
        self.replies: list[tuple[int, GroupReply]] = []

    def record(self, key: GroupKey, value: GroupValue | None) -> None:
        """Adds a record."""
        self.records.append(GroupRecord(key, value))

    def reply(self, ticket: int, reply: GroupReply) -> None:
        """Adds a reply."""
        self.replies.append((ticket, reply))

    def set_timer(self, kind: str, group_id: str, member_id: str, after_ms: int) -> None:
        """Sets a timer, `after_ms` from now."""
        self.changes.append(SetTimer(Timer(kind, group_id, member_id), self.now.ms + after_ms))

    def drop_timer(self, kind: str, group_id: str, member_id: str = "") -> None:
        """Drops a timer, if it is set."""
        self.changes.append(DropTimer(Timer(kind, group_id, member_id)))

    def hear(self, group_id: str, member_id: str, session_ms: int) -> None:
        """Restarts a member's session."""
        self.set_timer(SESSION, group_id, member_id, session_ms)

    def decision(self) -> GroupDecision:
        """The complete decision."""
        return GroupDecision(tuple(self.records), tuple(self.changes), tuple(self.replies))
