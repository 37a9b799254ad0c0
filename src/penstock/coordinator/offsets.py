"""OffsetCommit, OffsetFetch, OffsetDelete: committed offsets of groups, and their expiry.

Serves    OffsetCommit 2–10, OffsetFetch 1–10 (one group at a time), OffsetDelete 0; topics by name, ids are translated
          before.
Answers   in a group with members, only members of the current generation or epoch can commit; a commit that is not in
          the log is an error, always.
Departs   a member of a consumer group cannot commit for a partition that another member owns; in Kafka its epoch is
          enough. Offsets expire only in empty groups; Kafka also expires those of topics to which a live group no
          longer subscribes. Retention counts from when the group became empty, in both protocols (R25).
"""

from collections.abc import Collection, Iterator, Mapping, Set
from functools import lru_cache
from operator import itemgetter
from typing import Final

from penstock.coordinator.changes import Group, SetClassicGroup
from penstock.coordinator.classic import CONSUMER_PROTOCOL, ClassicGroup, State
from penstock.coordinator.consumer import ConsumerGroup
from penstock.coordinator.rebalance import admitted
from penstock.coordinator.records import GroupRecord
from penstock.coordinator.requests import Place, PlacesOf
from penstock.coordinator.settings import TOMBSTONE_BYTES_MAX, TOMBSTONES_MAX
from penstock.coordinator.subscriptions import subscribed_topics
from penstock.coordinator.work import Work
from penstock.model.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue

ANSWERS_KEPT: Final = 1_000
"""Size of a cache: most replies report success for a low partition."""


class Offsets:
    """All committed offsets of a shard: by group, topic and partition.

    They are kept as plain tuples of numbers and strings, which the garbage collector does not track.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, tuple[int, int, str, int, int]]] = {}
        self.orphans: dict[tuple[str, str, int], None] = {}
        """Group, topic and partition of offsets of deleted topics that the log still has; they are never returned."""

    def of(self, group_id: str) -> dict[Place, OffsetCommitValue]:
        """The offsets of a group."""
        return {place: _value(kept) for place, kept in self._groups.get(group_id, {}).items()}

    def places(self, group_id: str) -> Collection[Place]:
        """The partitions of a group's offsets."""
        return self._groups.get(group_id, {}).keys()

    def at(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """The offset of a group for one partition."""
        kept = self._groups.get(group_id, {}).get((topic, partition))
        return None if kept is None else _value(kept)

    def count_of(self, group_id: str) -> int:
        """The number of a group's offsets."""
        return len(self._groups.get(group_id, ()))

    def groups(self) -> list[str]:
        """Groups with offsets."""
        return list(self._groups)

    def topics(self) -> set[str]:
        """Topics with offsets."""
        return {topic for places in self._groups.values() for topic, _ in places}

    def orphan(self, topics: Set[str]) -> None:
        """Discards the offsets of deleted topics, even if new topics have the same names."""
        for group_id, places in list(self._groups.items()):
            for place in [place for place in places if place[0] in topics]:
                del places[place]
                self.orphans[group_id, *place] = None
            if not places:
                del self._groups[group_id]

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Applies a record."""
        if self.orphans:
            self.orphans.pop((key.group, key.topic, key.partition), None)
        if value is not None:
            offsets = self._groups.get(key.group)
            if offsets is None:
                offsets = self._groups[key.group] = {}
            offsets[key.topic, key.partition] = (
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
            )
        elif (offsets := self._groups.get(key.group)) is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self._groups[key.group]


def _value(kept: tuple[int, int, str, int, int]) -> OffsetCommitValue:
    offset, epoch, note, wall_ms, expires_ms = kept
    return OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=note, commit_timestamp=wall_ms, expire_timestamp=expires_ms
    )


def forgotten(group_id: str, topic: str, partition: int) -> GroupRecord:
    """The tombstone of an offset."""
    return GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


class Piece:
    """Tombstones of offsets and groups, as many as fit into a batch, since groups may have long names."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the rest must wait for the next batch."""
        return self._bytes >= TOMBSTONE_BYTES_MAX or len(self._work.records) >= TOMBSTONES_MAX

    def take(self, group_id: str, topic: str, partition: int) -> None:
        """Adds an offset."""
        self._bytes += len(group_id.encode()) + len(topic.encode())
        self._work.records.append(forgotten(group_id, topic, partition))

    def take_group(self, group: Group) -> None:
        """Adds a group that has no offsets left."""
        before = len(self._work.records)
        remove_group(group, self._work)
        self._bytes += (len(self._work.records) - before) * len(group.group_id.encode())


# --- committing -------------------------------------------------------------------------------------------------------


def commit(group: Group | None, request: OffsetCommitRequest, ticket: int, work: Work) -> None:
    """Commits offsets, if the sender is a current member or the group has no members."""
    code = _may_commit(group, request, work)
    bytes_max = work.view.settings.metadata_bytes_max
    consumers = group if isinstance(group, ConsumerGroup) else None
    topics = []
    for topic in request.topics:
        partitions = []
        known = None if consumers is None else work.view.topics.by_name.get(topic.name)
        for each in topic.partitions:
            number, note, verdict = each.partition_index, each.committed_metadata or "", code
            if verdict is ErrorCode.NONE and consumers is not None and known is not None:
                verdict = consumers.may_commit_of(request.member_id, (known.topic_id, number))
            if verdict is ErrorCode.NONE and len(note) * 4 > bytes_max and len(note.encode()) > bytes_max:
                verdict = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if verdict is ErrorCode.NONE:
                work.record(
                    OffsetCommitKey(group=request.group_id, topic=topic.name, partition=number),
                    OffsetCommitValue(
                        offset=each.committed_offset,
                        leader_epoch=each.committed_leader_epoch,
                        metadata=note,
                        commit_timestamp=work.now.wall_ms,
                    ),
                )
            partitions.append(_told(number, verdict))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    if group is None and work.records:
        work.changes.append(
            SetClassicGroup(request.group_id, ClassicGroup(request.group_id, since_wall_ms=work.now.wall_ms))
        )
    work.reply(ticket, OffsetCommitResponse(topics=topics))


@lru_cache(maxsize=ANSWERS_KEPT)
def _told(partition: int, verdict: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition, error_code=verdict)


def _may_commit(group: Group | None, request: OffsetCommitRequest, work: Work) -> ErrorCode:
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    if group is None:
        # A simple consumer may create a group; a member of an unknown group may not.
        return ErrorCode.NONE if epoch < 0 else ErrorCode.ILLEGAL_GENERATION
    is_nobody = epoch < 0 and not member_id and request.group_instance_id is None
    if group.is_empty and epoch < 0:
        return ErrorCode.NONE
    if is_nobody:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ConsumerGroup):
        return group.may_commit(member_id, epoch)
    code = admitted(group, member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if epoch != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is State.COMPLETING:
        # The member knows this generation, so it has given up its partitions of the last one.
        return ErrorCode.REBALANCE_IN_PROGRESS
    member = group.members[member_id]
    if member.joining is None and member.syncing is None:
        work.hear(group.group_id, member_id, member.session_timeout_ms)
    return ErrorCode.NONE


# --- fetching ---------------------------------------------------------------------------------------------------------


def fetch(group: Group | None, offsets: Offsets, request: OffsetFetchRequestGroup, ticket: int, work: Work) -> None:
    """Returns committed offsets of a group; all of them if no topics are named."""
    code = ErrorCode.NONE
    if isinstance(group, ConsumerGroup) and request.member_id and request.member_epoch >= 0:
        code = group.may_fetch(request.member_id, request.member_epoch)
    group_id = request.group_id
    topics: list[OffsetFetchResponseTopics] = []
    if code is ErrorCode.NONE and request.topics is None:
        names: dict[str, list[int]] = {}
        for topic, number in sorted(offsets.places(group_id)):
            names.setdefault(topic, []).append(number)
        topics = [
            OffsetFetchResponseTopics(
                name=name, partitions=[_shown(offsets.at(group_id, name, each), each) for each in numbers]
            )
            for name, numbers in names.items()
        ]
    elif code is ErrorCode.NONE:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[_shown(offsets.at(group_id, topic.name, each), each) for each in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ]
    work.reply(ticket, OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=code))


def places(offsets: Offsets, request: PlacesOf, ticket: int, work: Work) -> None:
    """Lists a group's partitions, so that a large group can be fetched in parts."""
    work.reply(ticket, list(offsets.places(request.group_id)))


def _shown(known: OffsetCommitValue | None, partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=-1 if known is None else known.offset,
        committed_leader_epoch=-1 if known is None else known.leader_epoch,
        metadata="" if known is None else known.metadata,
        error_code=ErrorCode.NONE,
    )


# --- deleting ---------------------------------------------------------------------------------------------------------


def delete(group: Group | None, offsets: Offsets, request: OffsetDeleteRequest, ticket: int, work: Work) -> None:
    """Deletes offsets of a group, but not those of subscribed topics."""
    code, read = _may_delete(group)
    known = offsets.places(request.group_id)
    topics = []
    for topic in request.topics if code is ErrorCode.NONE else ():
        verdict = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in read else ErrorCode.NONE
        partitions = []
        for each in topic.partitions:
            if verdict is ErrorCode.NONE and (topic.name, each.partition_index) in known:
                work.records.append(forgotten(request.group_id, topic.name, each.partition_index))
            partitions.append(OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=verdict))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    work.reply(ticket, OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=topics))


def _may_delete(group: Group | None) -> tuple[ErrorCode, Collection[str]]:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND, ()
    if group.is_empty:
        return ErrorCode.NONE, ()
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE, group.subscribed_names()
    if group.protocol_type != CONSUMER_PROTOCOL:
        return ErrorCode.NON_EMPTY_GROUP, ()
    read = subscribed_topics(group)
    return (ErrorCode.NON_EMPTY_GROUP, ()) if read is None else (ErrorCode.NONE, read)


def expired(group: Group, offsets: Offsets, work: Work) -> Iterator[Place]:
    """The partitions of a group whose offsets have expired; the group must be empty (KIP-211)."""
    emptied_ms = -1 if isinstance(group, ClassicGroup) and group.is_simple else group.since_wall_ms
    now_ms, retention_ms = work.now.wall_ms, work.view.settings.retention_ms
    for place, each in offsets.of(group.group_id).items():
        is_due = now_ms - max(each.commit_timestamp, emptied_ms) >= retention_ms
        if each.expire_timestamp > 0 and not is_due:  # only in old records, whose client set the retention
            is_due = emptied_ms < 0 and now_ms >= each.expire_timestamp
        if is_due:
            yield place


def expire_some(groups: Mapping[str, Group], offsets: Offsets, work: Work) -> bool:
    """Deletes expired offsets, and empty groups without offsets, in pieces; returns whether there may be more."""
    piece = Piece(work)
    for group_id, group in sorted(groups.items(), key=itemgetter(0)):
        if not group.is_empty or _is_joined(group):
            continue
        gone = list(expired(group, offsets, work))
        for place in gone:
            if piece.is_full:
                return True
            piece.take(group_id, *place)
        if piece.is_full:
            return True
        if len(gone) == offsets.count_of(group_id):
            piece.take_group(group)
    return False


def sweep_some(offsets: Offsets, work: Work) -> bool:
    """Deletes offsets of deleted topics from the log, in pieces; returns whether there are more."""
    piece = Piece(work)
    for orphan in offsets.orphans:
        if piece.is_full:
            return True
        piece.take(*orphan)
    return False


def _is_joined(group: Group) -> bool:
    """Whether a member is about to join."""
    return isinstance(group, ClassicGroup) and bool(group.pending)


def remove_group(group: Group, work: Work) -> None:
    """Removes an empty group."""
    if isinstance(group, ConsumerGroup):
        work.records += group.tombstones()
    else:
        if not group.is_simple or group.generation:
            work.record(group.key(), None)
        work.changes.append(SetClassicGroup(group.group_id, None))
