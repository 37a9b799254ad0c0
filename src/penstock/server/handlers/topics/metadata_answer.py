"""Builds Metadata responses from a cache of encoded topics, each kept until the topic changes.

Clients request the same topics repeatedly, and a topic of a thousand partitions takes milliseconds to encode. The bytes
are those that the codec would write for the whole response; only the array of topics is spliced in.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.metadata.image import Broker, Image, Partition, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.model.limits import MIB
from penstock.server.loop.pieces import PIECE_ELEMENTS, Turns, cut
from penstock.wire.codec import encode
from penstock.wire.headers import response_frame
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from penstock.wire.varint import write_uvarint

KEPT_BYTES_MAX: Final = 32 * MIB
PARTITIONS_AT_ONCE: Final = PIECE_ELEMENTS
"""Partitions of a topic that are encoded without a turn for other tasks."""
TOPIC_OPERATIONS: Final = 3576
"""All operations on a topic, as bits; restrictions of a client are not reported yet."""
UNTOLD_OPERATIONS: Final = -0x80000000
NO_LEADER: Final = -1

_LENGTH = struct.Struct(">i")
_FLEXIBLE_FIRST = MetadataResponse.FLEXIBLE.first


def _tail_bytes(version: int) -> int:
    """Size of what follows the topics: cluster operations (8 to 10), an error code (13), tagged fields."""
    return 4 * (8 <= version <= 10) + 2 * (version >= 13) + (version >= _FLEXIBLE_FIRST)


def write_answer(
    without_topics: MetadataResponse, pieces: Sequence[bytes], count: int, version: int, correlation_id: int
) -> bytearray:
    """The whole frame: a response without topics, with `count` encoded topics spliced in."""
    frame = response_frame(without_topics, version, correlation_id)
    is_flexible = version >= _FLEXIBLE_FIRST
    tail = len(frame) - _tail_bytes(version)
    out = frame[: tail - (1 if is_flexible else 4)]
    if is_flexible:
        write_uvarint(out, count + 1)
    else:
        out += _LENGTH.pack(count)
    for piece in pieces:
        out += piece
    out += frame[tail:]
    _LENGTH.pack_into(out, 0, len(out) - _LENGTH.size)
    return out


async def encode_large_topic(
    topic: Topic, brokers: Mapping[int, Broker], version: int, operations: int, turns: Turns
) -> bytes:
    """Encodes an existing topic in pieces: the bytes of its partitions are spliced into a topic without any."""
    count = len(topic.partitions)
    is_flexible = version >= _FLEXIBLE_FIRST
    length_bytes = 1 if is_flexible else 4
    empty = replace(topic, partitions={})
    without = encode_topic(describe_topic(empty, brokers, operations), version)
    tail = _topic_tail_bytes(version)
    out = bytearray(without[: len(without) - tail - length_bytes])
    if is_flexible:
        write_uvarint(out, count + 1)
    else:
        out += _LENGTH.pack(count)
    for part in cut(list(topic.partitions.items()), PARTITIONS_AT_ONCE):
        await turns.after(len(part))
        piece = encode_topic(describe_topic(replace(topic, partitions=dict(part)), brokers, operations), version)
        length = len(_uvarint(len(part) + 1)) if is_flexible else 4
        out += piece[len(without) - tail - length_bytes + length : len(piece) - tail]
    out += without[len(without) - tail :]
    return bytes(out)


def _topic_tail_bytes(version: int) -> int:
    """Size of what follows a topic's partitions: authorized operations (from 8 on), tagged fields."""
    return 4 * (version >= 8) + (version >= _FLEXIBLE_FIRST)


def _uvarint(value: int) -> bytearray:
    out = bytearray()
    write_uvarint(out, value)
    return out


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """Encodes one topic as an element of the response's array."""
    with_one = encode(MetadataResponse(brokers=(), topics=(topic,)), version)
    without = len(encode(MetadataResponse(brokers=(), topics=()), version))
    tail = _tail_bytes(version)
    return bytes(with_one[without - tail : len(with_one) - tail])


def describe_topic(topic: Topic, brokers: Mapping[int, Broker], operations: int) -> MetadataResponseTopic:
    """Describes an existing topic."""
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe(index, partition, brokers) for index, partition in topic.partitions.items()],
        topic_authorized_operations=operations,
    )


def _describe(index: int, partition: Partition, brokers: Mapping[int, Broker]) -> MetadataResponsePartition:
    has_leader = partition.leader in brokers
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline_replicas(partition, brokers),
    )


def offline_replicas(partition: Partition, brokers: Mapping[int, Broker]) -> list[int]:
    """Damaged replicas, and those whose broker is fenced or not registered."""
    damaged = partition.damaged
    return [each for each in partition.replicas if each not in brokers or brokers[each].is_fenced or each in damaged]


class TopicPieces:
    """Cache of encoded topics. A change of brokers clears it, because every partition lists its offline replicas."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept_bytes = 0
        self._brokers: Mapping[int, Broker] = {}
        self._pieces: dict[tuple[int, int], dict[str, tuple[Topic, bytes]]] = {}
        self._all: dict[tuple[int, int], tuple[object, object, bytes]] = {}

    async def one(
        self, topic: Topic, image: Image, version: int, turns: Turns, operations: int = UNTOLD_OPERATIONS
    ) -> bytes:
        """A topic of the image, encoded; a large one in pieces."""
        found = self._kept(topic, image, version, operations)
        if found is not None:
            return found
        count = len(topic.partitions)
        if count <= PARTITIONS_AT_ONCE:
            await turns.after(count)
            piece = encode_topic(describe_topic(topic, image.brokers, operations), version)
        else:
            piece = await encode_large_topic(topic, image.brokers, version, operations, turns)
        if image.brokers is self._brokers:  # else the cache is for a newer image by now
            self._keep(topic, piece, version, operations)
        return piece

    def _kept(self, topic: Topic, image: Image, version: int, operations: int) -> bytes | None:
        if image.brokers is not self._brokers or self._kept_bytes > self._kept_bytes_max:
            self._forget(image)
        found = self._pieces.get((version, operations), {}).get(topic.name)
        return found[1] if found is not None and found[0] is topic else None

    def _keep(self, topic: Topic, piece: bytes, version: int, operations: int) -> None:
        pieces = self._pieces.setdefault((version, operations), {})
        found = pieces.get(topic.name)
        pieces[topic.name] = topic, piece
        self._kept_bytes += len(piece) - (0 if found is None else len(found[1]))

    async def all(self, image: Image, version: int, operations: int = UNTOLD_OPERATIONS) -> bytes:
        """All topics of the image, sorted by name; those that are not cached are encoded in pieces."""
        kept = self._all.get((version, operations))
        if kept is not None and kept[0] is image.topics and kept[1] is image.brokers:
            return kept[2]
        turns, encoded = Turns(), []
        for _, topic in sorted(image.topics.items()):
            await turns.after()
            encoded.append(await self.one(topic, image, version, turns, operations))
        joined = b"".join(encoded)
        self._all[version, operations] = image.topics, image.brokers, joined
        return joined

    def _forget(self, image: Image) -> None:
        self._brokers = image.brokers
        self._kept_bytes = 0
        self._pieces.clear()
        self._all.clear()
