"""Builds Metadata responses from a cache of encoded topics, each kept until the topic changes.

Clients request the same topics repeatedly, and a topic of a thousand partitions takes milliseconds to encode. The bytes
are those that the codec would write for the whole response; only the array of topics is spliced in.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.metadata.image import Broker, Image, Partition, Topic
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.model.errors import ErrorCode
from penstock.model.limits import MIB
from penstock.server.connections.advertised import hidden_from
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
FIRST_WITH_LISTENER_ERROR: Final = 6
"""Earlier versions report LEADER_NOT_AVAILABLE for a leader that lacks the listener."""
NOBODY: Final[frozenset[int]] = frozenset()
Form: TypeAlias = tuple[int, int, frozenset[int]]
"""What the bytes of a topic depend on: the version, the operations, and the brokers that lack the listener."""

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
    topic: Topic,
    brokers: Mapping[int, Broker],
    version: int,
    operations: int,
    turns: Turns,
    hidden: frozenset[int] = NOBODY,
) -> bytes:
    """Encodes an existing topic in pieces: the bytes of its partitions are spliced into a topic without any."""
    count = len(topic.partitions)
    is_flexible = version >= _FLEXIBLE_FIRST
    length_bytes = 1 if is_flexible else 4
    empty = replace(topic, partitions={})
    without = encode_topic(describe_topic(empty, brokers, operations, version, hidden), version)
    tail = _topic_tail_bytes(version)
    out = bytearray(without[: len(without) - tail - length_bytes])
    if is_flexible:
        write_uvarint(out, count + 1)
    else:
        out += _LENGTH.pack(count)
    for part in cut(list(topic.partitions.items()), PARTITIONS_AT_ONCE):
        await turns.after(len(part))
        some = describe_topic(replace(topic, partitions=dict(part)), brokers, operations, version, hidden)
        piece = encode_topic(some, version)
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


def describe_topic(
    topic: Topic, brokers: Mapping[int, Broker], operations: int, version: int, hidden: frozenset[int] = NOBODY
) -> MetadataResponseTopic:
    """Describes an existing topic. The client cannot reach `hidden` brokers, because they lack its listener."""
    lacking = ErrorCode.LISTENER_NOT_FOUND if version >= FIRST_WITH_LISTENER_ERROR else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe(index, each, brokers, hidden, lacking) for index, each in topic.partitions.items()],
        topic_authorized_operations=operations,
    )


def _describe(
    index: int, partition: Partition, brokers: Mapping[int, Broker], hidden: frozenset[int], lacking: ErrorCode
) -> MetadataResponsePartition:
    leader = leader_of(partition, brokers, hidden)
    if leader != NO_LEADER:
        error = ErrorCode.NONE
    else:
        error = lacking if partition.leader in hidden else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline_replicas(partition, brokers, hidden),
    )


def leader_of(partition: Partition, brokers: Mapping[int, Broker], hidden: frozenset[int]) -> int:
    """The leader, if its broker is registered and has the client's listener; NO_LEADER otherwise."""
    return partition.leader if partition.leader in brokers and partition.leader not in hidden else NO_LEADER


def offline_replicas(partition: Partition, brokers: Mapping[int, Broker], hidden: frozenset[int]) -> list[int]:
    """Damaged replicas, and those whose broker is fenced, not registered or without the client's listener."""
    damaged = partition.damaged
    return [
        each
        for each in partition.replicas
        if each not in brokers or brokers[each].is_fenced or each in damaged or each in hidden
    ]


class TopicPieces:
    """Cache of encoded topics. A change of brokers clears it, because every partition lists its offline replicas.

    Listeners that all brokers have share their topics.
    """

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept_bytes = 0
        self._brokers: Mapping[int, Broker] = {}
        self._hidden: dict[str, frozenset[int]] = {}
        """Brokers that lack a listener."""
        self._pieces: dict[Form, dict[str, tuple[Topic, bytes]]] = {}
        self._all: dict[Form, tuple[object, object, bytes]] = {}

    async def one(
        self,
        topic: Topic,
        image: Image,
        listener: str,
        version: int,
        turns: Turns,
        operations: int = UNTOLD_OPERATIONS,
    ) -> bytes:
        """A topic of the image, encoded for clients of a listener; a large one in pieces."""
        form = version, operations, self._hidden_from(image, listener)
        found = self._kept(topic, form)
        if found is not None:
            return found
        _, _, hidden = form
        count = len(topic.partitions)
        if count <= PARTITIONS_AT_ONCE:
            await turns.after(count)
            piece = encode_topic(describe_topic(topic, image.brokers, operations, version, hidden), version)
        else:
            piece = await encode_large_topic(topic, image.brokers, version, operations, turns, hidden)
        if image.brokers is self._brokers:  # else the cache is for a newer image by now
            self._keep(topic, piece, form)
        return piece

    def _hidden_from(self, image: Image, listener: str) -> frozenset[int]:
        """The brokers that lack the listener; clears the cache if it is for other brokers, or too large."""
        if image.brokers is not self._brokers or self._kept_bytes > self._kept_bytes_max:
            self._forget(image)
        hidden = self._hidden.get(listener)
        if hidden is None:
            hidden = self._hidden[listener] = hidden_from(image.brokers, listener)
        return hidden

    def _kept(self, topic: Topic, form: Form) -> bytes | None:
        found = self._pieces.get(form, {}).get(topic.name)
        return found[1] if found is not None and found[0] is topic else None

    def _keep(self, topic: Topic, piece: bytes, form: Form) -> None:
        pieces = self._pieces.setdefault(form, {})
        found = pieces.get(topic.name)
        pieces[topic.name] = topic, piece
        self._kept_bytes += len(piece) - (0 if found is None else len(found[1]))

    async def all(self, image: Image, listener: str, version: int, operations: int = UNTOLD_OPERATIONS) -> bytes:
        """All topics of the image, sorted by name; those that are not cached are encoded in pieces."""
        form = version, operations, hidden_from(image.brokers, listener)
        kept = self._all.get(form)
        if kept is not None and kept[0] is image.topics and kept[1] is image.brokers:
            return kept[2]
        turns, encoded = Turns(), []
        for _, topic in sorted(image.topics.items()):
            await turns.after()
            encoded.append(await self.one(topic, image, listener, version, turns, operations))
        joined = b"".join(encoded)
        self._all[form] = image.topics, image.brokers, joined
        return joined

    def _forget(self, image: Image) -> None:
        self._brokers = image.brokers
        self._kept_bytes = 0
        self._hidden.clear()
        self._pieces.clear()
        self._all.clear()
