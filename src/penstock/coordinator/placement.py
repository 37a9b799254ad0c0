"""Which partition of an internal topic looks after a group or a transactional id: clients rely on it, as Java does."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Where groups are kept, and what they have read."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(name: str, partitions: int) -> int:
    """Kafka's Utils.abs takes the least of all numbers to 0."""
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
