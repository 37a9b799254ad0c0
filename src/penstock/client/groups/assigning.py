"""Partition assignment by the leader of a classic group: cooperative-sticky, in the format of Kafka's clients.

Balance has priority over stickiness. A partition that has to move is assigned to no member in the first round: its
owner revokes it and joins again, and in the second round it is free (KIP-429). So no member stops reading the
partitions that it keeps, and no partition is read by two members.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.metadata import TopicPartition
from penstock.client.offsets import by_topic
from penstock.model.errors import MalformedMessage
from penstock.wire.codec import read_from, write_into
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.wire.messages.consumer_protocol import TopicPartition as OwnedTopic

PROTOCOL_TYPE: Final = "consumer"
COOPERATIVE_STICKY: Final = "cooperative-sticky"
_VERSION: Final = struct.Struct(">h")
_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 1


class Wish(NamedTuple):
    """A member's subscription: topics, owned partitions, and the generation in which they were assigned."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


# --- encoding ---------------------------------------------------------------------------------------------------------


def subscription_bytes(wish: Wish) -> bytes:
    """Encodes a subscription for JoinGroup."""
    owned = [
        OwnedTopic(topic=topic, partitions=[each.partition for each in partitions])
        for topic, partitions in by_topic(sorted(wish.owned)).items()
    ]
    message = ConsumerProtocolSubscription(topics=wish.topics, owned_partitions=owned, generation_id=wish.generation)
    out = bytearray(_VERSION.pack(_SUBSCRIPTION_VERSION))
    write_into(out, message, _SUBSCRIPTION_VERSION)
    return bytes(out)


def read_wish(data: bytes) -> Wish:
    """Decodes a member's subscription; raises MalformedMessage if it is not in the consumer protocol's format."""
    told, _ = read_from(ConsumerProtocolSubscription, _version(data, _SUBSCRIPTION_VERSION), data, _VERSION.size)
    owned = tuple(TopicPartition(topic.topic, number) for topic in told.owned_partitions for number in topic.partitions)
    return Wish(tuple(told.topics), owned, told.generation_id)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """Encodes a member's assignment for SyncGroup."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=[each.partition for each in given])
        for topic, given in by_topic(sorted(partitions)).items()
    ]
    out = bytearray(_VERSION.pack(_ASSIGNMENT_VERSION))
    write_into(out, ConsumerProtocolAssignment(assigned_partitions=topics), _ASSIGNMENT_VERSION)
    return bytes(out)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decodes the assignment of this member; no bytes mean no partitions."""
    if not data:
        return ()
    version = _version(data, ConsumerProtocolAssignment.VERSIONS.last)
    told, _ = read_from(ConsumerProtocolAssignment, version, data, _VERSION.size)
    return tuple(
        TopicPartition(topic.topic, number) for topic in told.assigned_partitions for number in topic.partitions
    )


def _version(data: bytes, newest: int) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("what a member says has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedMessage(f"there is no version {version}")
    return min(version, newest)


# --- assignment -------------------------------------------------------------------------------------------------------


def assigned(wishes: Mapping[str, Wish], partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """The assignment of each member in this round. `partitions` holds the partition count of each topic."""
    owners = _owners(wishes, partitions)
    shares = _balanced(wishes, partitions, owners)
    return {
        member: sorted(each for each in share if owners.get(each, member) == member) for member, share in shares.items()
    }


def _owners(wishes: Mapping[str, Wish], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The owner of each partition: of several claims, the one of the newest generation; if that is a tie, none."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, wish in wishes.items():
        for each in wish.owned:
            if each.topic in wish.topics and each.partition < partitions.get(each.topic, 0):
                claims.setdefault(each, []).append((wish.generation, member))
    owners = {}
    for partition, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        found = [member for generation, member in claimed if generation == newest]
        if len(found) == 1:
            owners[partition] = found[0]
    return owners


def _balanced(
    wishes: Mapping[str, Wish], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    """The final assignment, once all partitions have moved."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(wishes)}
    readers: dict[str, list[str]] = {}
    for member in shares:
        for topic in dict.fromkeys(wishes[member].topics):
            readers.setdefault(topic, []).append(member)
    for topic in sorted(readers):
        for number in range(partitions.get(topic, 0)):
            each = TopicPartition(topic, number)
            owner = owners.get(each)
            if owner is not None:
                shares[owner].append(each)
    for topic in sorted(readers):
        for number in range(partitions.get(topic, 0)):
            each = TopicPartition(topic, number)
            if each not in owners:
                shares[_poorest(readers[topic], shares)].append(each)
    _even_out(shares, readers)
    return shares


def _poorest(members: Sequence[str], shares: Mapping[str, list[TopicPartition]]) -> str:
    return min(members, key=lambda member: len(shares[member]))


def _even_out(shares: dict[str, list[TopicPartition]], readers: Mapping[str, Sequence[str]]) -> None:
    """Moves partitions one by one from the member with most to that with fewest, until no move improves the balance."""
    held = {member: by_topic(share) for member, share in shares.items()}
    counts = {member: len(share) for member, share in shares.items()}
    left, has_moved = dict.fromkeys(shares), False
    while left:
        richest = max(left, key=counts.__getitem__)
        for topic, some in held[richest].items():
            poorest = min(readers[topic], key=counts.__getitem__)
            if some and counts[poorest] + 1 < counts[richest]:
                held[poorest].setdefault(topic, []).append(some.pop())
                counts[richest] -= 1
                counts[poorest] += 1
                has_moved = True
                break
        else:
            del left[richest]
            if not left and has_moved:  # members that had no partition to give may have one now
                left, has_moved = dict.fromkeys(shares), False
    for member, topics in held.items():
        shares[member] = [each for some in topics.values() for each in some]
