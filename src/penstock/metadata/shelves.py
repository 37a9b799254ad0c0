"""An immutable map that a change copies only in part.

Keys are spread over 1,024 shelves, each a small dict. A changed map shares every unchanged shelf, so a change copies
only the list of shelves and the shelves that it touches: some microseconds at a million keys. Comparing two maps with a
common history is as cheap, because shared shelves are identical objects.
"""

import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import compress
from operator import is_not
from typing import Final, Generic, NamedTuple, TypeVar

SHELVES: Final = 1024


class Resource(NamedTuple):
    """A resource that has settings: its type, numbered as in ConfigRecord, and its name."""

    kind: int
    name: str


K = TypeVar("K", str, bytes, Resource)
V = TypeVar("V")

_EMPTY: Final[list[dict[object, object]]] = [{}] * SHELVES


@lru_cache(maxsize=4096)
def _place(key: str | bytes | Resource) -> int:
    """Shelf of a key, by checksum: hashes differ between processes, and ids need not be random."""
    if isinstance(key, bytes):
        return zlib.crc32(key) % SHELVES
    if isinstance(key, str):
        return zlib.crc32(key.encode()) % SHELVES
    return zlib.crc32(key.name.encode(), key.kind) % SHELVES


class Shelves(Generic[K, V]):
    """See the module. Iteration order is the same for the same history, but has no meaning."""

    __slots__ = ("_count", "_shelves")

    def __init__(self, shelves: list[dict[K, V]] | None = None, count: int = 0) -> None:
        self._shelves: list[dict[K, V]] = _EMPTY if shelves is None else shelves  # type: ignore[assignment]
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: K) -> bool:
        return key in self._shelves[_place(key)]

    def __getitem__(self, key: K) -> V:
        return self._shelves[_place(key)][key]

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return self._shelves[_place(key)].get(key)

    def __iter__(self) -> Iterator[K]:
        for shelf in filter(None, self._shelves):
            yield from shelf

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys with their values."""
        for shelf in filter(None, self._shelves):
            yield from shelf.items()

    def values(self) -> Iterator[V]:
        """Values alone."""
        for shelf in filter(None, self._shelves):
            yield from shelf.values()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shelves):
            return NotImplemented
        return self._count == other._count and self._shelves == other._shelves

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Shelves({dict(self.items())!r})"

    def changed(self, changes: Mapping[K, V | None]) -> "Shelves[K, V]":
        """The map with these values; None removes a key."""
        if not changes:
            return self
        shelves = self._shelves.copy()
        owned: dict[int, dict[K, V]] = {}
        count = self._count
        for key, value in changes.items():
            place = _place(key)
            shelf = owned.get(place)
            if shelf is None:
                shelf = owned[place] = shelves[place] = shelves[place].copy()
            count -= key in shelf
            if value is None:
                shelf.pop(key, None)
            else:
                shelf[key] = value
                count += 1
        return Shelves(shelves, count)

    def differences(self, newer: "Shelves[K, V]") -> Iterator[tuple[K, V | None, V | None]]:
        """Every key whose value is not the same object in `newer`, with both values."""
        if self is newer:
            return
        are_changed = map(is_not, self._shelves, newer._shelves)
        for old, new in compress(zip(self._shelves, newer._shelves, strict=True), are_changed):
            for key, value in old.items():
                if new.get(key) is not value:
                    yield key, value, new.get(key)
            for key, value in new.items():
                if key not in old:
                    yield key, None, value
