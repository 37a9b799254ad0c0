"""A group shard on a log in memory and a manual clock; builders of consumer requests."""

import struct
from collections.abc import Sequence
from typing import Any

from penstock.coordinator.events import (
    Answer,
    Asked,
    Committed,
    Effect,
    Elected,
    Event,
    LogRead,
    ReadLog,
    Refuse,
    Resigned,
    TimePassed,
)
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.ports import Now, Producer
from penstock.coordinator.records import GroupRecord, decode_record, encode_record
from penstock.coordinator.requests import Ask
from penstock.coordinator.runtime import ShardRuntime
from penstock.coordinator.settings import GroupSettings
from penstock.coordinator.topics import Topic, Topics
from penstock.wire.codec import write_into
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WALL_MS = 1_700_000_000_000
QUICK = GroupSettings(initial_delay_ms=0, assignment_interval_ms=0)


class Counter:
    """An Entropy that returns consecutive numbers."""

    def __init__(self) -> None:
        self._next = 0

    def token(self, size_bytes: int) -> bytes:
        self._next += 1
        return self._next.to_bytes(size_bytes)

    def below(self, end: int) -> int:
        return 0


class MemoryLog:
    """A log of encoded records in memory; `refusal` is raised at the next append."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes | None]] = []
        self.refusal: Exception | None = None
        self.appends = 0

    @property
    def end_offset(self) -> int:
        return len(self.rows)

    def append(self, epoch: int, records: Sequence[Any], now: Now, producer: Producer | None = None) -> int:
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal
        self.appends += 1
        self.rows += [encode_record(record) for record in records]
        return len(self.rows)

    def records(self, offset: int = 0) -> list[GroupRecord]:
        found = (decode_record(*row) for row in self.rows[offset:])
        return [record for record in found if record is not None]


def topic(name: str, partitions: int, racks: tuple[tuple[str, ...], ...] = ()) -> Topic:
    return Topic(name, name.encode().ljust(16, b"."), partitions, racks)


def topics(*found: Topic, version: int = 0) -> Topics:
    return Topics({each.name: each for each in found}, version)


class ShardDriver:
    """Drives a shard; appends are committed at once unless `commits` is off."""

    def __init__(self, settings: GroupSettings = QUICK, known: Topics | None = None) -> None:
        self.log = MemoryLog()
        self.topics = known or topics(topic("a", 4), topic("b", 4))
        self.now_ms = 1_000
        self.wall_ms = WALL_MS
        self.commits = True
        self.answers: dict[int, Any] = {}
        self.refusals: dict[int, Any] = {}
        self._tickets = 0
        self._epoch = 0
        entropy = Counter()
        self.runtime = ShardRuntime(lambda: GroupShard(settings, entropy, lambda: self.topics), self.log)
        self.elect()

    @property
    def shard(self) -> GroupShard:
        assert self.runtime.shard is not None
        return self.runtime.shard

    def group(self, group_id: str = "g") -> Any:
        return self.shard.groups.get(group_id)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms)

    def elect(self) -> None:
        """Elects this broker, in the next epoch."""
        self._epoch += 1
        self.do(Elected(self._epoch, 0))

    def resign(self) -> None:
        self._epoch += 1
        self.do(Resigned(self._epoch))

    def do(self, event: Event) -> list[Effect]:
        effects = self.runtime.step(event, self.now)
        if self.commits:
            effects += self.runtime.step(Committed(self.log.end_offset), self.now)
        for effect in effects:
            match effect:
                case ReadLog(epoch, offset, end_offset):
                    self.do(LogRead(epoch, offset, self.log.records(offset), end_offset))
                case Answer(ticket, reply):
                    self.answers[ticket] = reply
                case Refuse(ticket, code):
                    self.refusals[ticket] = code
        return effects

    def send(self, request: Any, version: int = 9, client_id: str = "c") -> int:
        """Sends a request and returns its ticket."""
        self._tickets += 1
        self.do(Asked(self._tickets, Ask(request, version, client_id, "/host")))
        return self._tickets

    def ask(self, request: Any, version: int = 9, client_id: str = "c") -> Any:
        """Sends a request and returns the response, which must be immediate."""
        ticket = self.send(request, version, client_id)
        return self.answers.pop(ticket) if ticket in self.answers else self.refusals.pop(ticket)

    def pass_time(self, ms: int) -> None:
        """Advances the clock, firing timers when they are due."""
        end = self.now_ms + ms
        while (at := self.runtime.wake_at) is not None and at <= end:
            step_ms = max(0, at - self.now_ms)
            self.now_ms += step_ms
            self.wall_ms += step_ms
            self.do(TimePassed())
        self.wall_ms += end - self.now_ms
        self.now_ms = end


# --- consumer requests ------------------------------------------------------------------------------------------------


def subscription(*names: str, owned: dict[str, list[int]] | None = None, generation: int = -1) -> bytes:
    version = 1 if generation < 0 else 2
    out = bytearray(struct.pack(">h", version))
    listed = [TopicPartition(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()]
    told = ConsumerProtocolSubscription(topics=names, owned_partitions=listed, generation_id=generation)
    write_into(out, told, version)
    return bytes(out)


def join(
    member_id: str = "",
    *,
    instance: str | None = None,
    metadata: bytes | None = None,
    protocols: Sequence[str] = ("range",),
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
    group_id: str = "g",
    protocol_type: str = "consumer",
    reason: str | None = None,
) -> JoinGroupRequest:
    data = subscription("a") if metadata is None else metadata
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name in protocols],
        reason=reason,
    )


def sync(
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    group_id: str = "g",
) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()]
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        assignments=given,
    )


def beat(member_id: str, generation: int, *, instance: str | None = None, group_id: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
    )


def commit(
    offsets: dict[int, int],
    *,
    member_id: str = "",
    epoch: int = -1,
    note: str = "",
    topic_name: str = "a",
    group_id: str = "g",
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=note)
        for number, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic_name, partitions=partitions)],
    )


def fetch(group_id: str = "g") -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group_id, topics=None)


def fetched(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (each.name, part.partition_index): part.committed_offset for each in answer.topics for part in each.partitions
    }


def alive(
    member_id: str,
    epoch: int,
    *,
    names: Sequence[str] | None = None,
    pattern: str | None = None,
    owned: dict[str, list[int]] | None = None,
    instance: str | None = None,
    rack: str | None = None,
    assignor: str | None = None,
    group_id: str = "g",
    rebalance_ms: int = 20_000,
) -> ConsumerGroupHeartbeatRequest:
    """Builds a heartbeat of the new protocol; the first one carries all fields."""
    is_first = epoch == 0
    listed = (
        None
        if owned is None
        else [
            TopicPartitions(topic_id=name.encode().ljust(16, b"."), partitions=numbers)
            for name, numbers in owned.items()
        ]
    )
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms if is_first else -1,
        subscribed_topic_names=(("a",) if names is None and pattern is None else names) if is_first else names,
        subscribed_topic_regex=pattern,
        server_assignor=assignor,
        topic_partitions=[] if is_first else listed,
    )


def given(answer: Any) -> dict[str, list[int]]:
    """Returns the partitions that a response assigns, by topic."""
    return {each.topic_id.rstrip(b".").decode(): list(each.partitions) for each in answer.assignment.topic_partitions}
