"""The sparse index of one segment: every few kilobytes a batch's offset, position and the highest timestamp so far.

One file serves look-ups by offset and by time. The active segment's entries live in arrays and are written when it is
sealed: a crash loses nothing that a scan of that one segment does not restore. A sealed index ends with the
transactions that were aborted in the segment and a checksum over everything, and is read through a map. Offsets and
positions rise strictly, timestamps never fall.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import chain, islice
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.checked import Damaged
from penstock.model.ports import Buffer, File, FileMap

ENTRY = Struct(">IIq")
_TOGETHER = 512
_ENTRIES = Struct(">" + "IIq" * _TOGETHER)
ABORTED = Struct(">qqqq")
FOOTER = Struct(">IIII")
"""Entries, aborted transactions, magic, checksum of all before the checksum."""
MAGIC = 0x50534931


class Entry(NamedTuple):
    """One indexed batch."""

    offset_delta: int
    position: int
    max_timestamp_ms: int


class AbortedTransaction(NamedTuple):
    """A transaction that ended with an abort marker in this segment."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """What was stable when the marker came: no transaction that a reader below it must know of starts later."""


class ActiveIndex:
    """The index under construction."""

    __slots__ = ("aborted", "deltas", "positions", "timestamps")

    def __init__(self) -> None:
        self.deltas = array("I")
        self.positions = array("I")
        self.timestamps = array("q")
        self.aborted: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self.deltas)

    def add(self, offset_delta: int, position: int, max_timestamp_ms: int) -> bytes:
        """Takes one entry and returns how it is stored."""
        self.deltas.append(offset_delta)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_ms)
        return ENTRY.pack(offset_delta, position, max_timestamp_ms)

    def position_for_offset(self, offset_delta: int) -> int:
        """Where to start looking for an offset."""
        at = bisect_right(self.deltas, offset_delta) - 1
        return self.positions[at] if at >= 0 else 0

    def position_for_time(self, timestamp_ms: int) -> int:
        """Where to start looking for the first record with at least this timestamp."""
        at = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before(self, position: int) -> int:
        """The last indexed position that is not behind `position`."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def entry_before(self, offset_delta: int) -> Entry | None:
        """The last entry of a batch that begins before an offset."""
        at = bisect_left(self.deltas, offset_delta) - 1
        return Entry(self.deltas[at], self.positions[at], self.timestamps[at]) if at >= 0 else None

    def cut(self, position: int) -> None:
        """Forgets entries at or behind a position."""
        keep = bisect_left(self.positions, position)
        del self.deltas[keep:]
        del self.positions[keep:]
        del self.timestamps[keep:]

    def sealed(self) -> bytes:
        """The whole file of the finished index."""
        out = bytearray()
        entries = zip(self.deltas, self.positions, self.timestamps, strict=True)
        # Many in one call: nobody is served while a segment that is full gets its index.
        while together := list(islice(entries, _TOGETHER)):
            layout = _ENTRIES if len(together) == _TOGETHER else Struct(">" + "IIq" * len(together))
            out += layout.pack(*chain.from_iterable(together))
        for transaction in self.aborted:
            out += ABORTED.pack(*transaction)
        out += FOOTER.pack(len(self.deltas), len(self.aborted), MAGIC, 0)[:-4]
        out += crc32c(out).to_bytes(4, "big")
        return bytes(out)

    @classmethod
    def load(cls, sealed: "SealedIndex") -> "ActiveIndex":
        """Goes on with an index that was sealed at a clean shutdown."""
        index = cls()
        for at in range(sealed.count):
            index.add(*sealed.entry(at))
        index.aborted = list(sealed.aborted)
        return index


class SealedIndex:
    """A finished index, read in place."""

    __slots__ = ("_data", "aborted", "count")

    def __init__(self, data: Buffer, path: str) -> None:
        end = len(data)
        if end < FOOTER.size:
            raise Damaged(f"{path}: too short for an index")
        count, aborted, magic, checksum = FOOTER.unpack_from(data, end - FOOTER.size)
        if magic != MAGIC or end != count * ENTRY.size + aborted * ABORTED.size + FOOTER.size:
            raise Damaged(f"{path}: is not a sealed index")
        if crc32c(memoryview(data)[: end - 4]) != checksum:
            raise Damaged(f"{path}: does not match its checksum")
        self._data = data
        self.count: int = count
        start = count * ENTRY.size
        self.aborted = tuple(
            AbortedTransaction(*ABORTED.unpack_from(data, start + at * ABORTED.size)) for at in range(aborted)
        )

    def entry(self, at: int) -> Entry:
        """One entry."""
        return Entry(*ENTRY.unpack_from(self._data, at * ENTRY.size))

    def entry_before(self, offset_delta: int) -> Entry | None:
        """The last entry of a batch that begins before an offset."""
        count = self._count_where(0, offset_delta, inclusive=False)
        return self.entry(count - 1) if count else None

    def _last_where(self, field: int, limit: int, *, inclusive: bool) -> int:
        """The position of the last entry whose field is below (or at) the limit; 0 if there is none."""
        count = self._count_where(field, limit, inclusive=inclusive)
        return self.entry(count - 1).position if count else 0

    def _count_where(self, field: int, limit: int, *, inclusive: bool) -> int:
        """How many entries there are whose field is below (or at) the limit."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            value = ENTRY.unpack_from(self._data, middle * ENTRY.size)[field]
            if value < limit or (inclusive and value == limit):
                low = middle + 1
            else:
                high = middle
        return low

    def position_for_offset(self, offset_delta: int) -> int:
        """Where to start looking for an offset."""
        return self._last_where(0, offset_delta, inclusive=True)

    def position_for_time(self, timestamp_ms: int) -> int:
        """Where to start looking for the first record with at least this timestamp."""
        return self._last_where(2, timestamp_ms, inclusive=False)

    def position_before(self, position: int) -> int:
        """The last indexed position that is not behind `position`."""
        return self._last_where(1, position, inclusive=True)


class MappedIndex(SealedIndex):
    """A sealed index over a memory map; whoever holds it closes it."""

    __slots__ = ("_map",)

    def __init__(self, file: File) -> None:
        self._map: FileMap = file.map_readonly()
        try:
            super().__init__(self._map.view, file.path)
        except Damaged:
            self._map.close()
            raise

    def close(self) -> None:
        """Gives the map back."""
        self._data = b""
        self._map.close()
