"""Long work on the loop in pieces, between which other connections run.

Work yields by the count of elements, not by the clock, so that a simulated run is repeatable. An element stands for
about 20 microseconds of work; items that cost more count as several. A small request never yields.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, Generic, TypeVar, cast

from penstock.server.loop.pacing import pacer

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Topic = TypeVar("Topic", str, bytes)
Entry = TypeVar("Entry")

PIECE_ELEMENTS: Final = 500
"""Elements of one step of a coordinator or a controller."""
TURN_ELEMENTS: Final = 20
"""Elements that are handled before yielding."""
CHARACTERS_PER_ELEMENT: Final = 256
"""For a text that is processed character by character."""
SORTED_AT_ONCE: Final = 5_000
"""Texts that are sorted without yielding."""
REPEATED: Final = 2
"""Entries of one name that are kept; a name that occurs more often is refused like one that occurs twice."""
TOO_LARGE: Final = "The answer would be too large. Ask for less at a time."
"""Error message, with POLICY_VIOLATION, in place of the rest of a response that exceeds its limit."""


class Turns:
    """Counts the elements handled since the last yield."""

    __slots__ = ("_is_hurried", "_left")

    def __init__(self, *, is_hurried: bool = False) -> None:
        """Hurried work, such as replication, for which others wait, yields but never rests."""
        self._is_hurried = is_hurried
        self._left = TURN_ELEMENTS

    async def after(self, elements: int = 1) -> None:
        """Counts `elements` that were or will be handled, and yields if it is time to."""
        self._left -= elements
        if self._left <= 0:
            self._left = TURN_ELEMENTS
            if self._is_hurried:
                await asyncio.sleep(0)
            else:
                await pacer().turn()

    async def through(self, items: Iterable[Item], elements: int = 1) -> AsyncIterator[Item]:
        """Iterates over the items; each of them counts as `elements` elements."""
        for item in items:
            await self.after(elements)
            yield item


def weight_of(text: str | None) -> int:
    """The number of elements for a text that is processed character by character."""
    return 1 + len(text or "") // CHARACTERS_PER_ELEMENT


async def each_once(items: Iterable[Key], turns: Turns) -> dict[Key, None]:
    """Every item once, in the order of its first appearance."""
    found: dict[Key, None] = {}
    async for item in turns.through(items):
        found[item] = None
    return found


class Partitions(Generic[Topic, Entry]):
    """Entries of a request by topic and partition; of repeated ones the first is kept."""

    __slots__ = ("repeated", "topics")

    def __init__(self) -> None:
        self.topics: dict[Topic, dict[int, Entry]] = {}
        self.repeated: dict[tuple[Topic, int], None] = {}
        """Partitions that were named more than once."""

    async def single(self, turns: Turns) -> list[tuple[Topic, int, Entry]]:
        """Entries of partitions that were named once."""
        every = ((topic, index, each) for topic, found in self.topics.items() for index, each in found.items())
        return [each async for each in turns.through(every) if each[:2] not in self.repeated]


async def partitions_once(entries: Iterable[tuple[Topic, int, Entry]], turns: Turns) -> Partitions[Topic, Entry]:
    """Groups the entries of a request by topic and partition."""
    found: Partitions[Topic, Entry] = Partitions()
    async for topic, index, entry in turns.through(entries):
        known = found.topics.setdefault(topic, {})
        if index in known:
            found.repeated[topic, index] = None
        else:
            known[index] = entry
    return found


async def by_name(entries: Iterable[tuple[Key, Entry]], turns: Turns) -> dict[Key, list[Entry]]:
    """Groups entries by name, at most two of each: the second shows that the name is repeated."""
    found: dict[Key, list[Entry]] = {}
    async for key, entry in turns.through(entries):
        known = found.setdefault(key, [])
        if len(known) < REPEATED:
            known.append(entry)
    return found


async def in_order(texts: Sequence[str], turns: Turns) -> AsyncIterator[str]:
    """The texts in order, sorted in pieces."""
    runs = []
    for first in range(0, len(texts), SORTED_AT_ONCE):
        if first:
            await pacer().turn()
        runs.append(sorted(texts[first : first + SORTED_AT_ONCE]))
    async for text in turns.through(merge(*runs)):
        yield text


def cut(items: Sequence[Item], count: int) -> Iterator[Sequence[Item]]:
    """Parts of at most `count` items."""
    return (items[first : first + count] for first in range(0, len(items), count))


async def cut_by_weight(items: Iterable[Item], weigh: Callable[[Item], int], turns: Turns) -> list[list[Item]]:
    """Parts that count as PIECE_ELEMENTS at most; an item that counts as more is a part by itself."""
    parts: list[list[Item]] = []
    room = 0
    async for item in turns.through(items):
        weight = weigh(item)
        if not parts or weight > room:
            parts.append([])
            room = PIECE_ELEMENTS
        parts[-1].append(item)
        room -= weight
    return parts


async def in_turns(pieces: Generator[None, None, Item]) -> Item:
    """Runs work in pieces, between which other tasks run, and returns its result."""
    while True:
        try:
            next(pieces)
        except StopIteration as stop:
            return cast("Item", stop.value)
        await pacer().turn()
