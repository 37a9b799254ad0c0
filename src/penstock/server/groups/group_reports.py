"""Log messages of the group coordinator about groups and shards."""

from typing import Final

from penstock.model.group_events import EventKind, GroupEvent
from penstock.model.report import Kind, Level, Report

SHARD_LOADING: Final = Kind(
    "group-shard-loading",
    "Loads the groups of partition {partition} of __consumer_offsets, which it leads in epoch {epoch}.",
    "Requests of these groups are put off until group-shard-active.",
    of_each="partition",
)
SHARD_ACTIVE: Final = Kind(
    "group-shard-active",
    "Coordinates the groups of partition {partition} of __consumer_offsets in epoch {epoch}; groups: {groups}.",
    "They are served from here from now on.",
    of_each="partition",
)
SHARD_GONE: Final = Kind(
    "group-shard-gone",
    "Coordinates the groups of partition {partition} of __consumer_offsets no longer.",
    "Another broker does, or soon will; members find it by themselves.",
    of_each="partition",
)
REBALANCE_BEGUN: Final = Kind(
    "group-rebalance-begun",
    "Group {group} shares its partitions out anew, in epoch {epoch}: {reason}.",
    "Many of them for one group slow its members down: `penstock group why` shows all.",
    of_each="group",
)
REBALANCE_DONE: Final = Kind(
    "group-rebalance-done",
    "Group {group} has shared its partitions out among {members} members, in epoch {epoch}, after {took_ms} ms.",
    "A rebalance is over.",
    of_each="group",
)
MEMBER_TIMED_OUT: Final = Kind(
    "group-member-timed-out",
    "Member {member} of group {group} is out: {reason}.",
    "It was not heard in time. If it still runs, it is overloaded or works too long between two polls.",
    of_each="member",
)
MEMBER_CAME_OR_WENT: Final = Kind(
    "group-member",
    "Member {member} of group {group}: {what}.",
    "Members join and leave.",
    Level.DEBUG,
)

KINDS: Final = (
    SHARD_LOADING,
    SHARD_ACTIVE,
    SHARD_GONE,
    REBALANCE_BEGUN,
    REBALANCE_DONE,
    MEMBER_TIMED_OUT,
    MEMBER_CAME_OR_WENT,
)


def report_of(event: GroupEvent) -> Report:
    """The log message for an event."""
    match event.kind:
        case EventKind.REBALANCE_BEGUN:
            return REBALANCE_BEGUN(
                group=event.group, epoch=event.epoch, reason=event.reason or "a member joined or left"
            )
        case EventKind.REBALANCE_DONE:
            took_ms, members = event.took_ms, event.members
            return REBALANCE_DONE(group=event.group, epoch=event.epoch, members=members, took_ms=took_ms)
        case EventKind.TIMED_OUT:
            return MEMBER_TIMED_OUT(member=event.member, group=event.group, reason=event.reason or "it was not heard")
        case _:
            return MEMBER_CAME_OR_WENT(member=event.member, group=event.group, what=event.kind.value)
