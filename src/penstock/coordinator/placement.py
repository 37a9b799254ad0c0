"""Which partition of an internal topic looks after a group or a transactional id: clients rely on it, as Java does."""

import struct
from collections.abc import Iterator
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Where groups are kept, and what they have read."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    for unit in text.encode() if text.isascii() else _units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _units(text: str) -> Iterator[int]:
    return (unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")))


def partition_of(name: str, partitions: int) -> int:
    """Kafka's Utils.abs takes the least of all numbers to 0."""
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
