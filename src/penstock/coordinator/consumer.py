"""A consumer group (KIP-848): epochs, what each member is meant to read, and what it reads now.

Everything here comes from records, through `apply`; decisions apply theirs to a copy first (`draft`), so that both see
the same group. Three epochs: the group's rises when members or topics change; the target's follows when an assignment
is computed for it; a member's follows when it has given up what it must. Records that compaction has left over may come
in any order and are taken as they are.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.coordinator.records import GroupRecord
from penstock.model.errors import ErrorCode
from penstock.wire.stored import consumer_groups as stored

LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""A static member that will be back."""

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]
NOTHING: Final[Partitions] = frozenset()


REBALANCE_MS_DEFAULT: Final = 300_000


class MemberState(IntEnum):
    """Of a member, as its record has it."""

    STABLE = 0
    UNREVOKED = 1
    """It must give up partitions before it can go to the next epoch."""
    UNRELEASED = 2
    """It is in the newest epoch, and waits for partitions that others have yet to give up."""


class ClassicSide(NamedTuple):
    """Of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """One member: what it told, and where it stands."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def giving_up_ms(self) -> int:
        """How long it may take to give up what it is told to."""
        return self.rebalance_timeout_ms if self.rebalance_timeout_ms >= 0 else REBALANCE_MS_DEFAULT

    @property
    def owned(self) -> Partitions:
        """What nobody else may be given: what it has, and what it has not given up yet."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    @property
    def held_bytes(self) -> int:
        """What it says of itself: topics, pattern, and metadata of the classic protocol."""
        said = sum(map(len, self.topics)) + len(self.pattern)
        return said + (0 if self.classic is None else sum(len(metadata) for _, metadata in self.classic.protocols))

    def says_the_same(self, other: "Member") -> bool:
        """Whether both hold the same objects; else they may still be equal."""
        return self.topics is other.topics and self.pattern is other.pattern and self.classic is other.classic

    @property
    def outdated(self) -> ErrorCode:
        """How it is told, in its protocol, that a commit is of a time that is over."""
        return ErrorCode.STALE_MEMBER_EPOCH if self.classic is None else ErrorCode.ILLEGAL_GENERATION


class Pattern(NamedTuple):
    """A regular expression, and which topics it matched when it was last looked at."""

    topics: tuple[str, ...]
    names_hash: int
    wall_ms: int


class ConsumerGroup:
    """See the module."""

    __slots__ = (
        "assigned_wall_ms",
        "epoch",
        "group_id",
        "held_bytes",
        "members",
        "metadata_hash",
        "owners",
        "patterns",
        "since_wall_ms",
        "static",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.assigned_wall_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.static: dict[str, str] = {}
        self.owners: dict[TopicPartition, str] = {}
        """Who has a partition, or has not given it up yet."""
        self.patterns: dict[str, Pattern] = {}
        self.held_bytes = 0
        """What its members say of themselves."""
        self.since_wall_ms = -1
        """When it became empty, as far as this coordinator knows: soft."""

    def draft(self) -> "ConsumerGroup":
        """A copy to decide on."""
        copy = ConsumerGroup(self.group_id)
        copy.epoch, copy.metadata_hash = self.epoch, self.metadata_hash
        copy.target_epoch, copy.assigned_wall_ms = self.target_epoch, self.assigned_wall_ms
        copy.members, copy.targets = dict(self.members), dict(self.targets)
        copy.static, copy.owners, copy.patterns = dict(self.static), dict(self.owners), dict(self.patterns)
        copy.since_wall_ms = self.since_wall_ms
        copy.held_bytes = self.held_bytes
        return copy

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def state(self) -> str:
        """By the names that clients see."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = (
            member.epoch == self.target_epoch and member.state is MemberState.STABLE for member in self.members.values()
        )
        return "Stable" if all(settled) else "Reconciling"

    def topics_of(self, member: Member) -> tuple[str, ...]:
        """What a member reads: the topics that it named, and those that its pattern matched."""
        if not member.pattern:
            return member.topics
        known = self.patterns.get(member.pattern)
        return member.topics if known is None else tuple(sorted({*member.topics, *known.topics}))

    def subscribed_names(self) -> list[str]:
        """All topics that anybody reads, sorted."""
        names: set[str] = set()
        for member in self.members.values():
            names.update(self.topics_of(member))
        return sorted(names)

    def assignor(self, default: str) -> str:
        """What most members want; the first of these by name, where as many want another."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def may_commit(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether a commit of that member comes from its present epoch."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return member.outdated

    def may_commit_of(self, member_id: str, partition: TopicPartition) -> ErrorCode:
        """Whether a commit for that partition is not of the time before another member got it."""
        member = self.members.get(member_id)
        if member is None or self.owners.get(partition, member_id) == member_id:
            return ErrorCode.NONE
        return member.outdated

    def may_fetch(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether somebody who asks for offsets as that member is it."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def tombstones(self) -> list[GroupRecord]:
        """What takes the whole group back."""
        records = [record for member_id in self.members for record in member_tombstones(self.group_id, member_id)]
        records += [
            GroupRecord(
                stored.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=pattern), None
            )
            for pattern in self.patterns
        ]
        records.append(GroupRecord(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None))
        records.append(GroupRecord(stored.ConsumerGroupMetadataKey(group_id=self.group_id), None))
        return records

    # --- changing -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """What a record does to the group."""
        apply = _APPLY.get(type(record.key))
        if apply is not None:
            apply(self, record.key, record.value)

    def put(self, member: Member) -> None:
        """A member comes, or changes."""
        before = self.members.get(member.member_id)
        if before is None or not before.says_the_same(member):
            self.held_bytes += member.held_bytes - (0 if before is None else before.held_bytes)
        self.members[member.member_id] = member
        if before is not None and before.instance_id not in (None, member.instance_id):
            self._forget_instance(before)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        old = NOTHING if before is None else before.owned
        new = member.owned
        if old is new:
            return
        owners = self.owners
        for partition in sorted(old - new):
            if owners.get(partition) == member.member_id:
                del owners[partition]
        for partition in sorted(new - old):
            owners[partition] = member.member_id

    def remove(self, member_id: str) -> None:
        """A member goes, and what it had is free."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.held_bytes -= member.held_bytes
        self._forget_instance(member)
        for partition in sorted(member.owned):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]

    def _forget_instance(self, member: Member) -> None:
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]


# --- records ----------------------------------------------------------------------------------------------------------


def partitions_of(topics: Any) -> Partitions:
    """As records and requests list them."""
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def by_topic(partitions: Partitions) -> dict[bytes, list[int]]:
    """By topic, sorted."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found


def member_record(group_id: str, member: Member) -> GroupRecord:
    """What a member told."""
    classic = (
        stored.ClassicMemberMetadata()
        if member.classic is None
        else stored.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                stored.ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols
            ],
        )
    )
    value = stored.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return GroupRecord(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_record(group_id: str, member: Member) -> GroupRecord:
    """Where a member stands."""
    value = stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_listed(member.assigned),
        partitions_pending_revocation=_listed(member.revoking),
    )
    key = stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value)


def _listed(partitions: Partitions) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(partitions).items()
    ]


def target_record(group_id: str, member_id: str, target: Partitions) -> GroupRecord:
    """What a member is meant to read."""
    topics = [
        stored.TopicPartition(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(target).items()
    ]
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> GroupRecord:
    """For which epoch of the group that is."""
    key = stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return GroupRecord(key, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """The epoch of the group, and which topics it has seen."""
    value = stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), value)


def pattern_record(group_id: str, pattern: str, found: Pattern | None) -> GroupRecord:
    """Which topics a pattern matches; None when nobody asks any more."""
    key = stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if found is None:
        return GroupRecord(key, None)
    value = stored.ConsumerGroupRegularExpressionValue(
        topics=found.topics, version=found.names_hash, timestamp=found.wall_ms
    )
    return GroupRecord(key, value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """What takes a member back."""
    return [
        GroupRecord(stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def _apply_epoch(group: ConsumerGroup, _key: Any, value: Any) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _apply_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
        return
    told = value.classic_member_metadata
    classic = (
        None
        if told is None or not told.supported_protocols
        else ClassicSide(
            told.session_timeout_ms, tuple((each.name, each.metadata) for each in told.supported_protocols)
        )
    )
    member = group.members.get(key.member_id) or Member(key.member_id)
    group.put(
        member._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=classic,
        )
    )


def _apply_current(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.put(
                member._replace(
                    epoch=LEAVING_EPOCH,
                    previous_epoch=LEAVING_EPOCH,
                    state=MemberState.STABLE,
                    assigned=NOTHING,
                    revoking=NOTHING,
                )
            )
        return
    group.put(
        (member or Member(key.member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if value.state in _STATES else MemberState.STABLE,
            assigned=partitions_of(value.assigned_partitions),
            revoking=partitions_of(value.partitions_pending_revocation),
        )
    )


_STATES: Final = {int(state) for state in MemberState}


def _apply_target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = partitions_of(value.topic_partitions)


def _apply_target_epoch(group: ConsumerGroup, _key: Any, value: Any) -> None:
    if value is None:
        group.target_epoch, group.assigned_wall_ms = 0, 0
    else:
        group.target_epoch, group.assigned_wall_ms = value.assignment_epoch, value.assignment_timestamp


def _apply_pattern(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        group.patterns[key.regular_expression] = Pattern(tuple(value.topics), value.version, value.timestamp)


_APPLY: Final[dict[type, Callable[[ConsumerGroup, Any, Any], None]]] = {
    stored.ConsumerGroupMetadataKey: _apply_epoch,
    stored.ConsumerGroupMemberMetadataKey: _apply_member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: _apply_target_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: _apply_target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: _apply_current,
    stored.ConsumerGroupRegularExpressionKey: _apply_pattern,
}

OF_CONSUMER_GROUPS: Final = frozenset({*_APPLY, stored.ConsumerGroupPartitionMetadataKey})
"""Keys of records that belong to consumer groups; the last is of older versions, and says nothing any more."""
