"""A topic whose record values name their partition and offset, on brokers that coordinate groups."""

from typing import Any

import pytest

from penstock.records.builder import BatchBuilder
from tests.unit.client.group_brokers import GroupBrokers

BOTH = pytest.mark.parametrize("is_new", [True, False], ids=["consumer", "classic"])


def filled(partitions: int = 4, records: int = 10, *, is_new: bool = True, count: int = 1) -> GroupBrokers:
    brokers = GroupBrokers(count, is_new=is_new)
    for number, log in enumerate(brokers.add_topic("t", partitions)):
        for offset in range(records):
            append(log, f"{number}/{offset}")
    return brokers


def append(log: Any, text: str) -> None:
    builder = BatchBuilder()
    builder.append(None, text.encode(), (), 1_000)
    log.append(bytes(builder.build()))


def everything(partitions: int = 4, records: int = 10) -> list[str]:
    return sorted(f"{number}/{offset}" for number in range(partitions) for offset in range(records))
