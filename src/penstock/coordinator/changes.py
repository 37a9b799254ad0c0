"""Changes of a decision besides records: soft state, which is not in the log and a new coordinator starts without."""

from typing import NamedTuple, TypeAlias

from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.consumer import ConsumerGroup, Partitions
from penstock.coordinator.timers import DropTimer, SetTimer

Group: TypeAlias = ClassicGroup | ConsumerGroup


class SetClassicGroup(NamedTuple):
    """A change: the new state of a classic group, with its soft state; None if it is removed."""

    group_id: str
    group: ClassicGroup | None


class SetComparedTopics(NamedTuple):
    """A change: a consumer group was compared with topics; None if it must be compared again."""

    group_id: str
    topics_and_epoch: tuple[int, int] | None


class OwnershipReports(NamedTuple):
    """A member's reports of owned partitions to this coordinator."""

    owned: Partitions | None
    """Its last report, without partitions that were not its own."""
    proven: Partitions
    """The partitions that it was assigned and has reported."""
    told_ms: int
    """When it was told which partitions to revoke."""


class SetOwnershipReports(NamedTuple):
    """A change: a member has reported, or was told to revoke; None if it has left, or joins again."""

    group_id: str
    member_id: str
    reports: OwnershipReports | None


class SetEmptySince(NamedTuple):
    """A change: the time from which a consumer group counts as empty."""

    group_id: str
    wall_ms: int


Change: TypeAlias = SetTimer | DropTimer | SetClassicGroup | SetComparedTopics | SetOwnershipReports | SetEmptySince
