"""Offsets in JSON, as Spark's Kafka connector writes them to a checkpoint and accepts them as options.

Each source must be able to resume from the other's checkpoint, so only `{"topic": {"0": 15}}` is ever written. Topics
and partitions are always in the same order, because Spark compares the strings.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]
Stored = dict[str, dict[str, int]]

LATEST = -1
EARLIEST = -2
"""Markers that options may hold in place of an offset; a checkpoint never does."""


class JsonError(ValueError):
    """Text that does not list partitions, or a number for each partition."""


def to_stored(offsets: Offsets) -> Stored:
    """Converts offsets to the form of a checkpoint."""
    stored: Stored = {}
    for topic, partition in sorted(offsets):
        stored.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return stored


def from_stored(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Converts offsets from the form of a checkpoint, written by either source."""
    return _numbers(stored)


def read_numbers(text: str, example: str) -> dict[TopicPartition, int]:
    """Parses an offset or timestamp for each partition. The example goes into the error message."""
    try:
        return _numbers(json.loads(text))
    except ValueError:
        raise JsonError(f"expected something like {example}, not {text}") from None


def read_partitions(text: str) -> list[TopicPartition]:
    """Parses a list of partitions for each topic; sorted, without duplicates."""
    try:
        found = [
            TopicPartition(topic, _partition(number))
            for topic, numbers in _object(json.loads(text)).items()
            for number in _list(numbers)
        ]
    except ValueError:
        raise JsonError(f'expected something like {{"orders": [0, 1]}}, not {text}') from None
    return sorted(set(found))


def shown(partitions: Iterable[TopicPartition], most: int = 5) -> str:
    """Lists some partitions for a message, and the number of the others."""
    names = [str(each) for each in sorted(partitions)]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _numbers(found: object) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, _partition(int(key))): _whole(number)
        for topic, numbers in _object(found).items()
        for key, number in _object(numbers).items()
    }


def _object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise JsonError(f"{found!r} is not an object")
    return found


def _list(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise JsonError(f"{found!r} is not a list")
    return found


def _partition(found: object) -> int:
    number = _whole(found)
    if number < 0:
        raise JsonError(f"{number} is not a partition")
    return number


def _whole(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool):
        raise JsonError(f"{found!r} is not a whole number")
    return found
