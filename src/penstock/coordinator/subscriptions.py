"""Decodes the metadata that classic consumers exchange: topics, owned partitions, assignments.

Brokers otherwise pass it on unread. It is decoded only to describe groups, to protect the offsets of subscribed topics,
to compare the subscription of a static member that returns, and for classic members in consumer groups (KIP-848).
Bytes that cannot be decoded give None, never an error.
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
    """Decodes a member's subscription."""
    return _read(ConsumerProtocolSubscription, data)


def asks_for_the_same(before: bytes, after: bytes) -> bool:
    """Whether both name the same topics; owned partitions and generation are ignored, as a restart loses them."""
    if before == after:
        return True
    earlier, later = subscription(before), subscription(after)
    return earlier is not None and later is not None and set(earlier.topics) == set(later.topics)


def gives_up(told: bytes, given: bytes) -> bool:
    """Whether a member reported partitions that it is not assigned: it will join again, and others wait for that."""
    claim, share = subscription(told), assignment(given)
    return claim is not None and not _pairs(claim.owned_partitions) <= _given(share)


def leaves_some_unread(group: ClassicGroup, topics: Topics) -> bool:
    """Whether a partition of a subscribed topic is unassigned; False if an assignment cannot be decoded."""
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
    """Decodes a member's assignment."""
    return _read(ConsumerProtocolAssignment, data)


def assignment_bytes(partitions: Mapping[str, list[int]], version: int) -> bytes:
    """Encodes an assignment in a member's version."""
    version = max(0, min(version, ConsumerProtocolAssignment.VERSIONS.last))
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=numbers)
        for name, numbers in sorted(partitions.items())
    ]
    out = bytearray(_INT16.pack(version))
    write_into(out, ConsumerProtocolAssignment(assigned_partitions=topics), version)
    return bytes(out)


def version_of(data: bytes) -> int:
    """The version of a member's metadata."""
    return _INT16.unpack_from(data)[0] if len(data) >= _INT16.size else 0


def subscribed_topics(group: ClassicGroup) -> list[str] | None:
    """All subscribed topics of a classic group; None if a subscription cannot be decoded."""
    names: dict[str, None] = {}
    for member in group.members.values():
        told = subscription(member.protocols[0][1]) if member.protocols else None
        if told is None:
            return None
        names.update(dict.fromkeys(told.topics))
    return list(names)
