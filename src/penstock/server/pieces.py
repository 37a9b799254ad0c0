"""Long work on the loop in pieces, with turns for other connections between them.

Turns are given by the count of elements, not by the clock, so that a simulated run repeats itself. An element is worth
about 20 microseconds of work; what costs more counts as several. A small request has no turn in it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, Generic, TypeVar, cast

from penstock.server.pacing import pacer

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Topic = TypeVar("Topic", str, bytes)
Entry = TypeVar("Entry")

PIECE_ELEMENTS: Final = 500
"""Elements of one step of a coordinator or a controller."""
TURN_ELEMENTS: Final = 20
"""Elements that are handled without a turn for others."""
CHARACTERS_PER_ELEMENT: Final = 256
"""Of a text that is gone through character by character."""
SORTED_AT_ONCE: Final = 5_000
"""Texts that are sorted without a turn for others."""
REPEATED: Final = 2
"""Entries of one name that are kept; whatever is named more often is refused like what is named twice."""
TOO_LARGE: Final = "The answer would be too large. Ask for less at a time."
"""What is answered, with POLICY_VIOLATION, instead of the rest of an answer that is over its limit."""


class Turns:
    """Counts the elements that were handled since others had their turn."""

    __slots__ = ("_is_hurried", "_left")

    def __init__(self, *, is_hurried: bool = False) -> None:
        """Work that others wait for, such as replication, is hurried: it never rests."""
        self._is_hurried = is_hurried
        self._left = TURN_ELEMENTS

    async def after(self, elements: int = 1) -> None:
        """To be awaited after so many elements were handled, or before they are."""
        self._left -= elements
        if self._left <= 0:
            self._left = TURN_ELEMENTS
            if self._is_hurried:
                await asyncio.sleep(0)
            else:
                await pacer().turn()

    async def through(self, items: Iterable[Item], elements: int = 1) -> AsyncIterator[Item]:
        """The items; each of them counts as so many elements."""
        for item in items:
            await self.after(elements)
            yield item


def weight_of(text: str | None) -> int:
    """How many elements a text counts as that is gone through character by character."""
    return 1 + len(text or "") // CHARACTERS_PER_ELEMENT


async def each_once(items: Iterable[Key], turns: Turns) -> dict[Key, None]:
    """Every item once, in the order of its first appearance."""
    found: dict[Key, None] = {}
    async for item in turns.through(items):
        found[item] = None
    return found


class Partitions(Generic[Topic, Entry]):
    """Entries of a request by topic and partition, each once: the first one counts."""

    __slots__ = ("repeated", "topics")

    def __init__(self) -> None:
        self.topics: dict[Topic, dict[int, Entry]] = {}
        self.repeated: dict[tuple[Topic, int], None] = {}
        """Those that were named more than once."""

    async def single(self, turns: Turns) -> list[tuple[Topic, int, Entry]]:
        """Those that were named once."""
        every = ((topic, index, each) for topic, found in self.topics.items() for index, each in found.items())
        return [each async for each in turns.through(every) if each[:2] not in self.repeated]


async def partitions_once(entries: Iterable[tuple[Topic, int, Entry]], turns: Turns) -> Partitions[Topic, Entry]:
    """The partitions of a request."""
    found: Partitions[Topic, Entry] = Partitions()
    async for topic, index, entry in turns.through(entries):
        known = found.topics.setdefault(topic, {})
        if index in known:
            found.repeated[topic, index] = None
        else:
            known[index] = entry
    return found


async def by_name(entries: Iterable[tuple[Key, Entry]], turns: Turns) -> dict[Key, list[Entry]]:
    """Entries by what they name, at most two of each: the second one shows that it is repeated."""
    found: dict[Key, list[Entry]] = {}
    async for key, entry in turns.through(entries):
        known = found.setdefault(key, [])
        if len(known) < REPEATED:
            known.append(entry)
    return found


async def in_order(texts: Sequence[str], turns: Turns) -> AsyncIterator[str]:
    """Texts sorted, in pieces."""
    runs = []
    for first in range(0, len(texts), SORTED_AT_ONCE):
        if first:
            await pacer().turn()
        runs.append(sorted(texts[first : first + SORTED_AT_ONCE]))
    async for text in turns.through(merge(*runs)):
        yield text


def cut(items: Sequence[Item], count: int) -> Iterator[Sequence[Item]]:
    """Parts of at most so many items."""
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
    """What work in pieces returns; between two pieces other tasks get a turn."""
    while True:
        try:
            next(pieces)
        except StopIteration as stop:
            return cast("Item", stop.value)
        await pacer().turn()
