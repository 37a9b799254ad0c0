"""Offsets in JSON, as Spark's Kafka connector writes them into a checkpoint and takes them as options.

A checkpoint of either source must go on in the other, so nothing but `{"topic": {"0": 15}}` is ever written. Topics and
partitions are always in the same order, because Spark compares the texts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]
Stored = dict[str, dict[str, int]]

LATEST = -1
EARLIEST = -2
"""What options may say in place of an offset; a checkpoint never does."""


class JsonError(ValueError):
    """A text that does not say which partitions, or which number for each of them."""


def to_stored(offsets: Offsets) -> Stored:
    """As it goes into a checkpoint."""
    stored: Stored = {}
    for topic, partition in sorted(offsets):
        stored.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return stored


def from_stored(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """As it comes out of one, whoever wrote it."""
    return _numbers(stored)


def read_numbers(text: str, example: str) -> dict[TopicPartition, int]:
    """A number for each partition: offsets, or timestamps. The example shows what was expected."""
    try:
        return _numbers(json.loads(text))
    except ValueError:
        raise JsonError(f"expected something like {example}, not {text}") from None


def read_partitions(text: str) -> list[TopicPartition]:
    """A list of partitions for each topic, in order and each once."""
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
    """Some partitions for a reader, and how many more there are."""
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
