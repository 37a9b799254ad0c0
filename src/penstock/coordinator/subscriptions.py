"""What classic consumers say to each other, read by the broker: topics, owned partitions, assignments.

Brokers are strangers to it and pass it on unread; it is read only to describe groups, to protect the offsets of topics
that are read, to see what a static member wants that is back, and where classic members meet the new protocol
(KIP-848). What cannot be read is None, never an error.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.topics import Topics
from penstock.model.errors import ProtocolError
from penstock.wire.codec import read_from, write_into
from penstock.wire.declare import Message
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_INT16: Final = struct.Struct(">h")
M = TypeVar("M", bound=Message)


def _read(kind: type[M], data: bytes) -> M | None:
    if len(data) < _INT16.size:
        return None
    version = min(_INT16.unpack_from(data)[0], kind.VERSIONS.last)
    if version < 0:
        return None
    try:
        return read_from(kind, version, data, _INT16.size)[0]
    except ProtocolError:
        return None


def subscription(data: bytes) -> ConsumerProtocolSubscription | None:
    """What a member asks for."""
    return _read(ConsumerProtocolSubscription, data)


def asks_for_the_same(before: bytes, after: bytes) -> bool:
    """Whether a member wants the same topics; what it has, and since when, is no wish, and unknown after a restart."""
    if before == after:
        return True
    earlier, later = subscription(before), subscription(after)
    return earlier is not None and later is not None and set(earlier.topics) == set(later.topics)


def gives_up(told: bytes, given: bytes) -> bool:
    """Whether a member said that it has what it is not given: it will join again, and others wait for that."""
    claim, share = subscription(told), assignment(given)
    return claim is not None and not _pairs(claim.owned_partitions) <= _given(share)


def leaves_some_unread(group: ClassicGroup, topics: Topics) -> bool:
    """Whether a partition of a topic that the group reads was given to nobody; not if that cannot be read."""
    shares = [assignment(member.assignment) for member in group.members.values()]
    given = set().union(*map(_given, shares))
    return None not in shares and any(
        (name, number) not in given
        for name in subscribed_topics(group) or ()
        if name in topics.by_name
        for number in range(topics.by_name[name].partitions)
    )


def _given(share: ConsumerProtocolAssignment | None) -> set[tuple[str, int]]:
    return set() if share is None else _pairs(share.assigned_partitions)


def _pairs(topics: Sequence[TopicPartition | ConsumerProtocolAssignmentTopicPartition]) -> set[tuple[str, int]]:
    return {(each.topic, number) for each in topics for number in each.partitions}


def assignment(data: bytes) -> ConsumerProtocolAssignment | None:
    """What a member was given."""
    return _read(ConsumerProtocolAssignment, data)


def assignment_bytes(partitions: Mapping[str, list[int]], version: int) -> bytes:
    """An assignment as a member of that version reads it."""
    version = max(0, min(version, ConsumerProtocolAssignment.VERSIONS.last))
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=numbers)
        for name, numbers in sorted(partitions.items())
    ]
    out = bytearray(_INT16.pack(version))
    write_into(out, ConsumerProtocolAssignment(assigned_partitions=topics), version)
    return bytes(out)


def version_of(data: bytes) -> int:
    """In which version a member speaks."""
    return _INT16.unpack_from(data)[0] if len(data) >= _INT16.size else 0


def subscribed_topics(group: ClassicGroup) -> list[str] | None:
    """All topics that members of a classic group read; None if somebody's wish cannot be read."""
    names: dict[str, None] = {}
    for member in group.members.values():
        told = subscription(member.protocols[0][1]) if member.protocols else None
        if told is None:
            return None
        names.update(dict.fromkeys(told.topics))
    return list(names)
