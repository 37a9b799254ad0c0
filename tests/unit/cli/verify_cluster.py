"""A cluster in memory for runs of `penstock verify`, with bugs that can be planted."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.cli.verify.clients import READ_MAX, Fate, Ranges, Row, Told, Unreadable
from penstock.client.errors import TimedOut
from penstock.client.offsets import Moment

PARTITIONS = 2
LIST_BEFORE_THE_END = 3
"""Offsets are listed at the start, as the bound of the following readers, and as the final end."""


@dataclass
class Bugs:
    """Planted bugs. Numbers count the records sent: the 50th is lost, and so on."""

    lost: frozenset[int] = frozenset()
    """Acknowledged, but another record is in the log."""
    doubled: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()
    """One byte of the padding is changed."""
    swapped: frozenset[int] = frozenset()
    """The record and the one before it swap places, acknowledgements included."""
    hidden_from: Callable[[str, int], bool] = lambda _reader, _offset: False
    cut_before_the_end: int = 0
    """This many records vanish after all but the last readers have read them, before the last readers list the end."""
    cut_at_the_end: int = 0
    """This many records vanish after the last readers have listed the end."""
    refuses: bool = False
    never_lists: bool = False
    fails_often: bool = False
    """Half of all records are refused or have an unknown outcome; reads fail now and then."""
    unread_end: bool = False
    """The last readers never reach the end."""


@dataclass
class MemoryCluster:
    """Partitions as lists; implements the Clients and the Lister of a run."""

    bugs: Bugs = field(default_factory=Bugs)
    name: str = "memory 1"
    logs: dict[int, list[bytes]] = field(default_factory=lambda: {each: [] for each in range(PARTITIONS)})
    sent: int = 0
    lists: int = 0
    """Number of requests for the offsets of all partitions."""

    def sender(self, name: str) -> "MemorySender":
        return MemorySender(self)

    def reader(self, name: str) -> "MemoryReader":
        if name == "fresh-0" and self.bugs.cut_at_the_end:
            del self.logs[0][-self.bugs.cut_at_the_end :]
        return MemoryReader(self, name)

    async def offsets(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        self.lists += len(partitions) == PARTITIONS
        if self.bugs.cut_before_the_end and self.lists == LIST_BEFORE_THE_END:
            del self.logs[0][-self.bugs.cut_before_the_end :]
        if self.bugs.never_lists and moment is Moment.LATEST:
            raise TimedOut("no answer")
        return {each: 0 if moment is Moment.EARLIEST else len(self.logs[each]) for each in partitions}

    async def close(self) -> None:
        pass


@dataclass
class MemorySender:
    cluster: MemoryCluster

    async def send(self, partition: int, body: bytes, told: Told) -> None:
        cluster, bugs = self.cluster, self.cluster.bugs
        cluster.sent += 1
        number, log = cluster.sent, cluster.logs[partition]
        if bugs.refuses:
            told(Fate(error="NOT_ENOUGH_REPLICAS", is_unsent=True))
            return
        if bugs.fails_often and number % 2:
            if number % 4 == 1:
                log.append(body)  # appended, but the response is lost
            told(Fate(error="timed out", is_unsent=number % 4 == 3))
            return
        if number in bugs.lost:
            body = b"another"
        if number in bugs.changed:
            body = body[:-1] + b"!"
        if number in bugs.swapped and log:
            log.insert(len(log) - 1, body)
            told(Fate(len(log) - 2))
            return
        log += [body] * (2 if number in bugs.doubled else 1)
        told(Fate(len(log) - 1))

    async def close(self) -> None:
        pass


class MemoryReader:
    def __init__(self, cluster: MemoryCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int | None] = {}
        self._reads = 0

    def assign(self, ranges: Ranges) -> None:
        self._positions = {each: start for each, (start, _) in ranges.items()}
        self._ends = {each: end for each, (_, end) in ranges.items()}

    async def read(self, limit_s: float) -> list[Row]:
        await asyncio.sleep(0.005)
        self._reads += 1
        bugs = self._cluster.bugs
        if bugs.fails_often and self._reads % 5 == 0:
            raise Unreadable("stumbled", is_gone=self._reads % 10 == 0)
        if bugs.unread_end and self._name.startswith("fresh"):
            return []
        rows = [
            Row(partition, offset, self._cluster.logs[partition][offset])
            for partition, start in self._positions.items()
            for offset in itertools.takewhile(
                lambda offset, partition=partition: self._is_there(partition, offset),  # type: ignore[misc]
                range(start, start + READ_MAX),
            )
        ]
        for row in rows:
            self._positions[row.partition] = row.offset + 1
        return [row for row in rows if not bugs.hidden_from(self._name, row.offset)]

    def _is_there(self, partition: int, offset: int) -> bool:
        end = self._ends[partition]
        return offset < len(self._cluster.logs[partition]) and (end is None or offset < end)

    def position(self, partition: int) -> int:
        return self._positions[partition]

    async def close(self) -> None:
        pass
