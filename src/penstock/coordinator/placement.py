"""Maps a group or a transactional id to a partition of an internal topic, by Java's hash, as clients expect."""

import struct
from collections.abc import Iterator
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The topic of groups and their committed offsets."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    for unit in text.encode() if text.isascii() else _units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _units(text: str) -> Iterator[int]:
    return (unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")))


def partition_of(name: str, partitions: int) -> int:
    """The partition of a name. As Kafka's Utils.abs does, maps the least integer to 0."""
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
