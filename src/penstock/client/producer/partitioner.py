"""Partitioners: for records with a key, the same as Kafka's Java client.

The hash is Kafka's variant of murmur2 (seed 0x9747b28c); its sign bit is dropped before the remainder. Records without
a key stick to one partition until it has received a batch's worth of bytes, so that batches fill (KIP-794).
"""

import struct
from collections.abc import Sequence
from typing import Protocol

from penstock.model.ports import Entropy

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORDS = struct.Struct("<I").iter_unpack


def murmur2(data: bytes) -> int:
    """The hash, from 0 to 2^32 - 1. Java shows the same bits as a signed number."""
    size = len(data)
    whole = size & ~3
    value = _SEED ^ size
    for (word,) in _WORDS(data[:whole]):
        k = word * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = value * _M & _MASK ^ k
    if rest := size - whole:
        value = (value ^ int.from_bytes(data[whole : whole + rest], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition to which the Java client sends a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Spread(Protocol):
    """Partitioner for records without a key."""

    def pick(self, topic: str, partitions: int, available: Sequence[int], size_bytes: int) -> int:
        """Picks a partition for a record of this size; `available` are those with a leader, and may be empty."""


class Sticky:
    """Uses one partition for about a batch's worth of bytes, then another at random."""

    def __init__(self, entropy: Entropy, switch_bytes: int) -> None:
        self._entropy = entropy
        self._switch_bytes = switch_bytes
        self._current: dict[str, tuple[int, int]] = {}

    def pick(self, topic: str, partitions: int, available: Sequence[int], size_bytes: int) -> int:
        """See Spread."""
        partition, filled_bytes = self._current.get(topic, (-1, self._switch_bytes))
        choices = available or range(partitions)
        if filled_bytes >= self._switch_bytes or partition not in choices:
            partition, filled_bytes = choices[self._entropy.below(len(choices))], 0
        self._current[topic] = (partition, filled_bytes + size_bytes)
        return partition


class RoundRobin:
    """Uses the partitions in turn."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def pick(self, topic: str, partitions: int, available: Sequence[int], size_bytes: int) -> int:  # noqa: ARG002
        """See Spread."""
        choices = available or range(partitions)
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        return choices[number % len(choices)]
