"""A consumer group (KIP-848): epochs, and the target and current assignment of each member.

All durable state comes from records, through `apply`; decisions apply theirs to a copy first (`draft`), so that both
see the same group. Three epochs: the group's rises when members or topics change; the target's follows when an
assignment is computed for it; a member's follows when it has revoked what it must. Records that compaction has left
over may come in any order and are applied as they are.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, assert_never

from penstock.coordinator.records import GroupRecord, value_as
from penstock.coordinator.settings import NAME_BYTES
from penstock.model.errors import ErrorCode
from penstock.wire.stored import consumer_groups as stored
from penstock.wire.stored.consumer_offsets import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey

LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""Epoch of a static member that has left temporarily."""

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]
NOTHING: Final[Partitions] = frozenset()


REBALANCE_MS_DEFAULT: Final = 300_000


class MemberState(IntEnum):
    """State of a member, as in its record."""

    STABLE = 0
    UNREVOKED = 1
    """It must revoke partitions before it can move to the next epoch."""
    UNRELEASED = 2
    """It is in the target epoch, and waits for partitions that others have yet to revoke."""


_STATES: Final = {int(state) for state in MemberState}


class ClassicSide(NamedTuple):
    """Data of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """One member: its metadata and its reconciliation state."""

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
        """How long it may take to revoke partitions."""
        return self.rebalance_timeout_ms if self.rebalance_timeout_ms >= 0 else REBALANCE_MS_DEFAULT

    @property
    def owned(self) -> Partitions:
        """Partitions that no other member may get: assigned to it, or not revoked yet."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    @property
    def held_bytes(self) -> int:
        """Memory of its metadata: topics, pattern, and metadata of the classic protocol."""
        said = sum(map(len, self.topics)) + NAME_BYTES * len(self.topics) + len(self.pattern)
        return said + (0 if self.classic is None else sum(len(metadata) for _, metadata in self.classic.protocols))

    def says_the_same(self, other: "Member") -> bool:
        """Whether both hold the same metadata objects; others may still be equal."""
        return self.topics is other.topics and self.pattern is other.pattern and self.classic is other.classic

    @property
    def outdated(self) -> ErrorCode:
        """The error for an outdated commit, in its protocol."""
        return ErrorCode.STALE_MEMBER_EPOCH if self.classic is None else ErrorCode.ILLEGAL_GENERATION


class Pattern(NamedTuple):
    """The topics that a regular expression matched when it was last evaluated."""

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
        """The member that has a partition, or has not revoked it yet."""
        self.patterns: dict[str, Pattern] = {}
        self.held_bytes = 0
        """Bytes of its members' metadata."""
        self.since_wall_ms = -1
        """When it became empty, as far as this coordinator knows; soft state."""

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

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> str:
        """The state, by the name that clients see."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = (
            member.epoch == self.target_epoch and member.state is MemberState.STABLE for member in self.members.values()
        )
        return "Stable" if all(settled) else "Reconciling"

    def topics_of(self, member: Member) -> tuple[str, ...]:
        """A member's subscription: the topics that it named, and those that its pattern matched."""
        if not member.pattern:
            return member.topics
        known = self.patterns.get(member.pattern)
        return member.topics if known is None else tuple(sorted({*member.topics, *known.topics}))

    def subscribed_names(self) -> list[str]:
        """All subscribed topics, sorted."""
        names: set[str] = set()
        for member in self.members.values():
            names.update(self.topics_of(member))
        return sorted(names)

    def assignor(self, default: str) -> str:
        """The assignor that most members want; on a tie the first by name."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def may_commit(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether a commit of a member comes from its present epoch."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return member.outdated

    def may_commit_of(self, member_id: str, partition: TopicPartition) -> ErrorCode:
        """Whether a member may commit for a partition: no other member owns it."""
        member = self.members.get(member_id)
        if member is None or self.owners.get(partition, member_id) == member_id:
            return ErrorCode.NONE
        return member.outdated

    def may_fetch(self, member_id: str, epoch: int) -> ErrorCode:
        """Whether an offset fetch names a member and its present epoch."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones of the whole group."""
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
        """Applies a record; ignores records of other kinds."""
        key, value = record
        match key:
            case stored.ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key, value_as(stored.ConsumerGroupCurrentMemberAssignmentValue, value))
            case stored.ConsumerGroupTargetAssignmentMemberKey():
                self._apply_target(key, value_as(stored.ConsumerGroupTargetAssignmentMemberValue, value))
            case stored.ConsumerGroupMemberMetadataKey():
                self._apply_member(key, value_as(stored.ConsumerGroupMemberMetadataValue, value))
            case stored.ConsumerGroupMetadataKey():
                self._apply_epoch(value_as(stored.ConsumerGroupMetadataValue, value))
            case stored.ConsumerGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value_as(stored.ConsumerGroupTargetAssignmentMetadataValue, value))
            case stored.ConsumerGroupRegularExpressionKey():
                self._apply_pattern(key, value_as(stored.ConsumerGroupRegularExpressionValue, value))
            case stored.ConsumerGroupPartitionMetadataKey():
                pass  # written by older versions
            case OffsetCommitKey() | GroupMetadataKey() | LegacyOffsetCommitKey():
                pass  # offsets, or the classic group that it was or becomes
            case _:
                assert_never(key)

    def _apply_epoch(self, value: stored.ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member(
        self, key: stored.ConsumerGroupMemberMetadataKey, value: stored.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self.remove(key.member_id)
            return
        told = value.classic_member_metadata
        classic = (
            None
            if told is None or not told.supported_protocols
            else ClassicSide(
                told.session_timeout_ms, tuple((each.name, each.metadata) for each in told.supported_protocols)
            )
        )
        member = self.members.get(key.member_id) or Member(key.member_id)
        self.put(
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

    def _apply_current(
        self,
        key: stored.ConsumerGroupCurrentMemberAssignmentKey,
        value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member = self.members.get(key.member_id)
        if value is None:
            if member is not None:
                self.put(
                    member._replace(
                        epoch=LEAVING_EPOCH,
                        previous_epoch=LEAVING_EPOCH,
                        state=MemberState.STABLE,
                        assigned=NOTHING,
                        revoking=NOTHING,
                    )
                )
            return
        self.put(
            (member or Member(key.member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state) if value.state in _STATES else MemberState.STABLE,
                assigned=partitions_of(value.assigned_partitions),
                revoking=partitions_of(value.partitions_pending_revocation),
            )
        )

    def _apply_target(
        self,
        key: stored.ConsumerGroupTargetAssignmentMemberKey,
        value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = partitions_of(value.topic_partitions)

    def _apply_target_epoch(self, value: stored.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        if value is None:
            self.target_epoch, self.assigned_wall_ms = 0, 0
        else:
            self.target_epoch, self.assigned_wall_ms = value.assignment_epoch, value.assignment_timestamp

    def _apply_pattern(
        self, key: stored.ConsumerGroupRegularExpressionKey, value: stored.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            self.patterns[key.regular_expression] = Pattern(tuple(value.topics), value.version, value.timestamp)

    def put(self, member: Member) -> None:
        """Adds or replaces a member."""
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
        """Removes a member and frees its partitions."""
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


class PartitionsOfTopic(Protocol):
    """Partitions of a topic, as records and requests list them."""

    @property
    def topic_id(self) -> bytes:
        """Id of the topic."""

    @property
    def partitions(self) -> Sequence[int]:
        """Partition numbers."""


def partitions_of(topics: Iterable[PartitionsOfTopic]) -> Partitions:
    """The partitions that records and requests list."""
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def by_topic(partitions: Partitions) -> dict[bytes, list[int]]:
    """Partition numbers by topic, sorted."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found


def member_record(group_id: str, member: Member) -> GroupRecord:
    """Record of a member's metadata."""
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
    """Record of a member's epoch and current assignment."""
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
    """Record of a member's target assignment."""
    topics = [
        stored.TopicPartition(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(target).items()
    ]
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> GroupRecord:
    """Record of the group epoch of the target assignment."""
    key = stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return GroupRecord(key, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Record of the group epoch, and of the hash of its topics."""
    value = stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), value)


def pattern_record(group_id: str, pattern: str, found: Pattern | None) -> GroupRecord:
    """Record of the topics that a pattern matches; a tombstone for None."""
    key = stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    if found is None:
        return GroupRecord(key, None)
    value = stored.ConsumerGroupRegularExpressionValue(
        topics=found.topics, version=found.names_hash, timestamp=found.wall_ms
    )
    return GroupRecord(key, value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """Tombstones of a member."""
    return [
        GroupRecord(stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]
