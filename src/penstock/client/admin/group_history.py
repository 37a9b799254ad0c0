"""History of a group: from the events topic of its coordinators, or derived from `__consumer_offsets`.

Coordinators of Penstock write an event for each change of a group. Other coordinators only record the members of each
generation in `__consumer_offsets`: this shows which members joined and left, but not why, nor how long any member
waited; and compaction removes older records.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import At, Consumer, Message, Start
from penstock.client.errors import Refused
from penstock.client.metadata import Topic, TopicPartition
from penstock.coordinator.placement import partition_of
from penstock.coordinator.records import decode_record
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.group_events import TOPIC, EventKind, GroupEvent, decode_event
from penstock.wire.stored.consumer_groups import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from penstock.wire.stored.consumer_offsets import GroupMetadataKey, GroupMetadataValue

OFFSETS_TOPIC: Final = "__consumer_offsets"


class History(NamedTuple):
    """Events in order, and whether the coordinator recorded them, so that they are complete."""

    events: list[GroupEvent]
    is_told: bool


async def group_history(cluster: Cluster, group_id: str, since_ms: int, *, timeout_ms: int | None = None) -> History:
    """Events of a group since a timestamp."""
    topic = await _found(cluster, TOPIC, timeout_ms)
    if topic is not None:
        told = [event async for event in _told(cluster, topic, group_id, since_ms, timeout_ms)]
        return History(sorted(told, key=lambda event: event.at_ms), True)
    topic = await _found(cluster, OFFSETS_TOPIC, timeout_ms)
    if topic is None:
        return History([], False)
    return History(await _derived(cluster, topic, group_id, since_ms, timeout_ms), False)


async def _found(cluster: Cluster, name: str, timeout_ms: int | None) -> Topic | None:
    try:
        return await cluster.topic(name, timeout_ms=timeout_ms)
    except Refused as refused:
        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise


async def _read(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, timeout_ms: int | None
) -> AsyncIterator[Message]:
    consumer = Consumer(cluster, out_of_range="earliest")
    try:
        await consumer.assign(dict.fromkeys(partitions, start), until_end=True, timeout_ms=timeout_ms)
        while (piece := await consumer.fetch_records(500, timeout_ms)) is not None:
            for message in piece.messages():
                yield message
    finally:
        await consumer.close()


async def _told(
    cluster: Cluster, topic: Topic, group_id: str, since_ms: int, timeout_ms: int | None
) -> AsyncIterator[GroupEvent]:
    """Reads all partitions: their number may have changed since the group's first event."""
    places = [TopicPartition(topic.name, each.index) for each in topic.partitions]
    async for message in _read(cluster, places, At(since_ms), timeout_ms):
        if message.key == group_id.encode():
            event = decode_event(message.value)
            if event is not None and event.at_ms >= since_ms:
                yield event


# --- events derived from __consumer_offsets ---------------------------------------------------------------------------


async def _derived(
    cluster: Cluster, topic: Topic, group_id: str, since_ms: int, timeout_ms: int | None
) -> list[GroupEvent]:
    place = TopicPartition(topic.name, partition_of(group_id, len(topic.partitions)))
    notebook = Notebook(group_id)
    async for message in _read(cluster, [place], "earliest", timeout_ms):
        notebook.take(message)
    return [event for event in notebook.events if event.at_ms >= since_ms]


class Notebook:
    """Derives the events of one group from the records of its coordinator, one record at a time."""

    def __init__(self, group_id: str) -> None:
        self.events: list[GroupEvent] = []
        self._group_id = group_id
        self._members: dict[str, tuple[str, str, str | None]] = {}
        self._is_first = True

    def take(self, message: Message) -> None:
        """Processes a record of the coordinator's log, of this group or another."""
        try:
            record = decode_record(message.key, message.value)
        except ProtocolError:
            return
        match record:
            case (GroupMetadataKey(group=self._group_id), GroupMetadataValue() as value):
                self._generation(message.timestamp_ms, value)
            case (ConsumerGroupMemberMetadataKey(group_id=self._group_id) as key, value):
                self._member(message.timestamp_ms, key.member_id, value)  # type: ignore[arg-type]
            case (ConsumerGroupMetadataKey(group_id=self._group_id), ConsumerGroupMetadataValue() as value):
                self._add(EventKind.REBALANCE_BEGUN, message.timestamp_ms, "consumer", value.epoch)

    def _generation(self, at_ms: int, value: GroupMetadataValue) -> None:
        members = {each.member_id: (each.client_id, each.client_host, each.group_instance_id) for each in value.members}
        if not self._is_first:
            for member_id, who in self._members.items():
                if member_id not in members:
                    self._of_member(EventKind.LEFT, at_ms, "classic", member_id, who, value.generation)
        for member_id, who in members.items():
            if member_id not in self._members:
                self._of_member(EventKind.JOINED, at_ms, "classic", member_id, who, value.generation)
        self._members, self._is_first = members, False
        self._add(EventKind.REBALANCE_DONE, at_ms, "classic", value.generation)

    def _member(self, at_ms: int, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            who = self._members.pop(member_id, None)
            if who is not None:
                self._of_member(EventKind.LEFT, at_ms, "consumer", member_id, who, None)
        else:
            is_new = member_id not in self._members
            who = self._members[member_id] = (value.client_id, value.client_host, value.instance_id)
            if is_new:
                self._of_member(EventKind.JOINED, at_ms, "consumer", member_id, who, None)

    def _of_member(
        self,
        kind: EventKind,
        at_ms: int,
        protocol: str,
        member_id: str,
        who: tuple[str, str, str | None],
        epoch: int | None,
    ) -> None:
        client_id, host, instance = who
        event = GroupEvent(
            self._group_id, kind, at_ms, protocol, epoch, member_id, client_id=client_id, host=host, instance=instance
        )
        self.events.append(event)

    def _add(self, kind: EventKind, at_ms: int, protocol: str, epoch: int) -> None:
        members = len(self._members)
        self.events.append(GroupEvent(self._group_id, kind, at_ms, protocol, epoch, members=members))
