"""Reads a Produce request (versions 3 to 13) without copying its records.

Twin of `messages.produce.ProduceRequest`: both must accept the same inputs and return the same values. In
addition, this reader rejects requests with too many partitions before it reads them.
"""

import struct
from typing import NamedTuple, TypeAlias

from penstock.model.errors import MalformedMessage, RequestTooCostly, UnsupportedVersion
from penstock.model.limits import DEFAULT_LIMITS
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.types import STRING_BYTES_MAX
from penstock.wire.varint import read_uvarint

_ACKS_TIMEOUT = struct.Struct(">hi").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_TWO_INT32 = struct.Struct(">ii").unpack_from

FIRST_COMPACT = ProduceRequest.FLEXIBLE.first
FIRST_WITH_TOPIC_IDS = 13
NAME_BYTES_USUAL = 256
"""No existing topic has a longer name; longer names are charged by their length."""
NAME_SHIFT = 6


ProducedPartition: TypeAlias = tuple[str | bytes, int, memoryview | None]
"""Topic (its name, or from version 13 on its id), partition, and the records as a view into the frame."""


class Produced(NamedTuple):
    """A flattened Produce request; its parts are in wire order."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducedPartition]


def read_produce(
    version: int, frame: memoryview, position: int, partitions_max: int = DEFAULT_LIMITS.produce_partitions_max
) -> Produced:
    """The request whose body starts at `position` and ends with the frame.

    Topics and unknown tagged fields count as partitions; RequestTooCostly if there are too many of them.
    """
    if version not in ProduceRequest.VERSIONS:
        raise UnsupportedVersion(f"ProduceRequest has versions {ProduceRequest.VERSIONS}, not {version}")
    try:
        read = _read_compact if version >= FIRST_COMPACT else _read_classic
        produced, end = read(version, frame, position, partitions_max)
    except RequestTooCostly:
        raise RequestTooCostly(
            f"ProduceRequest v{version} has more than {partitions_max:,} topics, partitions and tagged fields"
        ) from None
    except (IndexError, struct.error):
        raise MalformedMessage(f"ProduceRequest v{version} ends before its last field") from None
    except UnicodeDecodeError:
        raise MalformedMessage(f"ProduceRequest v{version} holds a string that is not UTF-8") from None
    if end != len(frame):
        raise MalformedMessage(f"ProduceRequest v{version} is followed by {len(frame) - end} bytes of something")
    return produced


def _read_compact(version: int, b: memoryview, p: int, left: int) -> tuple[Produced, int]:
    # One-byte varints are decoded inline: a call would cost more than the rest of a partition.
    end = len(b)
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    transactional_id = None
    size = b[p]
    p += 1
    if size > 127:
        size, p = read_uvarint(b, p - 1)
    if size:
        transactional_id, p = _text(b, p, size - 1)
    acks, timeout_ms = _ACKS_TIMEOUT(b, p)
    topics = b[p + 6]
    p += 7
    if topics > 127:
        topics, p = read_uvarint(b, p - 1)
    if not 0 <= (topics - 1) * (18 if has_ids else 3) <= end - p:
        raise MalformedMessage(f"topic_data: {topics - 1} elements cannot fit into the bytes that remain")
    left -= topics - 1
    parts: list[ProducedPartition] = []
    for _ in range(topics - 1):
        topic: str | bytes
        if has_ids:
            topic = b[p : p + 16].tobytes()
            p += 16
        else:
            size = b[p]
            p += 1
            if size > 127:
                size, p = read_uvarint(b, p - 1)
            if size > NAME_BYTES_USUAL:
                left -= size >> NAME_SHIFT
            topic, p = _text(b, p, size - 1)
        count = b[p]
        p += 1
        if count > 127:
            count, p = read_uvarint(b, p - 1)
        if not 0 <= (count - 1) * 6 <= end - p:
            raise MalformedMessage(f"partition_data: {count - 1} elements cannot fit into the bytes that remain")
        left -= count - 1
        if left < 0:
            raise RequestTooCostly
        for _ in range(count - 1):
            (partition,) = _INT32(b, p)
            size = b[p + 4]
            p += 5
            if size > 127:
                size, p = read_uvarint(b, p - 1)
            if size:
                behind = p + size - 1
                if behind > end:
                    raise MalformedMessage(f"records: a length of {size - 1} bytes exceeds the bytes that remain")
                parts.append((topic, partition, b[p:behind]))
                p = behind
            else:
                parts.append((topic, partition, None))
            if b[p]:
                p, left = _skip_tags(b, p, left)
            else:
                p += 1
        if b[p]:
            p, left = _skip_tags(b, p, left)
        else:
            p += 1
    p = p + 1 if b[p] == 0 else _skip_tags(b, p, left)[0]
    return Produced(transactional_id, acks, timeout_ms, parts), p


def _read_classic(_version: int, b: memoryview, p: int, left: int) -> tuple[Produced, int]:
    end = len(b)
    (size,) = _INT16(b, p)
    p += 2
    transactional_id = None
    if size >= 0:
        transactional_id, p = _text(b, p, size)
    acks, timeout_ms = _ACKS_TIMEOUT(b, p)
    (topics,) = _INT32(b, p + 6)
    p += 10
    if not 0 <= topics * 6 <= end - p:
        raise MalformedMessage(f"topic_data: {topics} elements cannot fit into the bytes that remain")
    left -= topics
    parts: list[ProducedPartition] = []
    for _ in range(topics):
        (size,) = _INT16(b, p)
        if size > NAME_BYTES_USUAL:
            left -= size >> NAME_SHIFT
        topic, p = _text(b, p + 2, size)
        (count,) = _INT32(b, p)
        p += 4
        if not 0 <= count * 8 <= end - p:
            raise MalformedMessage(f"partition_data: {count} elements cannot fit into the bytes that remain")
        left -= count
        if left < 0:
            raise RequestTooCostly
        for _ in range(count):
            partition, size = _TWO_INT32(b, p)
            p += 8
            records = None
            if size >= 0:
                behind = p + size
                if behind > end:
                    raise MalformedMessage(f"records: a length of {size} bytes exceeds the bytes that remain")
                records = b[p:behind]
                p = behind
            parts.append((topic, partition, records))
    return Produced(transactional_id, acks, timeout_ms, parts), p


def _text(b: memoryview, p: int, size: int) -> tuple[str, int]:
    behind = p + size
    if behind > len(b) or not 0 <= size <= STRING_BYTES_MAX:
        raise MalformedMessage(f"a string of {size} bytes is not allowed or exceeds the bytes that remain")
    return str(b[p:behind], "utf-8"), behind


def _skip_tags(b: memoryview, p: int, left: int) -> tuple[int, int]:
    """The position after unknown tagged fields, and how many more elements are allowed."""
    count, p = read_uvarint(b, p)
    if count * 2 > len(b) - p:
        raise MalformedMessage(f"tagged fields: {count} elements cannot fit into the bytes that remain")
    left -= count
    if left < 0:
        raise RequestTooCostly
    for _ in range(count):
        _, p = read_uvarint(b, p)
        size, p = read_uvarint(b, p)
        p += size
        if p > len(b):
            raise MalformedMessage(f"a tagged field of {size} bytes exceeds the bytes that remain")
    return p, left
