"""Measures how long partitions of a group had no reader, as far as its coordinator can know.

A member reads its assigned partitions until it reports that it has given them up. From its join to its next sync, a
classic member reads those that it reports when it joins (none, if it is eager); a KIP-848 member reads those that it
owns. A lost member has read nothing since its last heartbeat. Only clients know when they really stop and start.
Assignments that cannot be decoded, such as Kafka Connect's, count as a whole.
"""

from collections.abc import Callable, Mapping
from typing import Final

from penstock.coordinator.classic import CONSUMER_PROTOCOL, ClassicGroup
from penstock.coordinator.classic import Member as ClassicMember
from penstock.coordinator.consumer import AWAY_EPOCH, ConsumerGroup, Member
from penstock.coordinator.subscriptions import assignment, subscription
from penstock.coordinator.topics import Topics

Place = tuple[str, int]
"""A partition by name; or a member's whole assignment, by member id and WHOLE."""
Share = frozenset[Place]
WHOLE: Final = -1
_NOTHING: Final[Share] = frozenset()


class Pauses:
    """Pauses of one group. `topics` returns the cluster's topics, `owes_sync` whether a member has yet to sync."""

    def __init__(self, topics: Callable[[], Topics], owes_sync: Callable[[ConsumerGroup, Member], bool]) -> None:
        self._topics = topics
        self._owes_sync = owes_sync
        self._seen: dict[str, tuple[ClassicMember | Member, bool]] = {}
        self._shares: dict[str, Share] = {}
        self._readers: dict[Place, str] = {}
        self._unread: dict[Place, int] = {}
        """Partitions without a reader, and since when."""
        self._longest_ms = 0

    def look(self, group: ClassicGroup | ConsumerGroup, now_ms: int, lost: Mapping[str, int]) -> None:
        """Updates from a changed group; `lost` has the time of each lost member's last heartbeat."""
        changed = self._changed(group)
        for member_id in [each for each in self._seen if each not in group.members]:
            del self._seen[member_id]
            changed[member_id] = _NOTHING
        before = {each: self._shares.pop(each, _NOTHING) for each in changed}
        for member_id, share in changed.items():
            for place in sorted(before[member_id] - share):
                if self._readers.get(place) == member_id:
                    del self._readers[place]
                    self._unread[place] = lost.get(member_id, now_ms)
        for member_id, share in changed.items():
            if share:
                self._shares[member_id] = share
            for place in sorted(share - before[member_id]):
                self._readers[place] = member_id
                self._longest_ms = max(self._longest_ms, now_ms - self._unread.pop(place, now_ms))
        if not group.members:
            self._unread.clear()

    def begin(self) -> None:
        """A rebalance may begin: earlier pauses do not count."""
        self._longest_ms = 0

    def finish(self, now_ms: int) -> int:
        """A rebalance is done: returns its longest pause, in milliseconds."""
        wholes = [now_ms - since for (_, number), since in self._unread.items() if number == WHOLE]
        self._unread.clear()
        return max(self._longest_ms, *wholes, 0)

    def _changed(self, group: ClassicGroup | ConsumerGroup) -> dict[str, Share]:
        """Partitions of the members that have changed; member objects are immutable and get replaced."""
        changed: dict[str, Share] = {}
        if isinstance(group, ClassicGroup):
            for member in group.members.values():
                known = self._seen.get(member.member_id)
                if known is None or known[0] is not member:
                    self._seen[member.member_id] = (member, False)
                    changed[member.member_id] = _classic_share(group, member)
            return changed
        for each in group.members.values():
            owes_sync = each.classic is not None and self._owes_sync(group, each)
            known = self._seen.get(each.member_id)
            if known is None or known[0] is not each or known[1] is not owes_sync:
                self._seen[each.member_id] = (each, owes_sync)
                changed[each.member_id] = self._consumer_share(each, owes_sync=owes_sync)
        return changed

    def _consumer_share(self, member: Member, *, owes_sync: bool) -> Share:
        if member.epoch == AWAY_EPOCH:
            return _NOTHING
        by_id = self._topics().by_id
        owned = frozenset((by_id[topic_id].name, number) for topic_id, number in member.owned if topic_id in by_id)
        if member.classic is None or not owes_sync:
            return owned
        return owned & _claimed(member.classic.protocols)


def _classic_share(group: ClassicGroup, member: ClassicMember) -> Share:
    """Partitions that a member was assigned, or still reports as owned."""
    is_readable = group.protocol_type == CONSUMER_PROTOCOL
    claimed = _claimed(member.protocols) if is_readable else _NOTHING
    if member.joining is not None or member.owes_sync or not member.assignment:
        return claimed
    given = assignment(member.assignment) if is_readable else None
    if given is None:
        return frozenset({(member.member_id, WHOLE)})
    return claimed | {(topic.topic, number) for topic in given.assigned_partitions for number in topic.partitions}


def _claimed(protocols: tuple[tuple[str, bytes], ...]) -> Share:
    told = subscription(protocols[0][1]) if protocols else None
    if told is None:
        return _NOTHING
    return frozenset((topic.topic, number) for topic in told.owned_partitions for number in topic.partitions)
