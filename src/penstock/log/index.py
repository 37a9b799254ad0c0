"""The sparse index of one segment: every few kilobytes a batch's offset, position and the highest timestamp so far.

One file serves lookups by offset and by time. The active segment's entries are held in arrays and written when it is
sealed: after a crash, a scan of that one segment restores them. A sealed index ends with the transactions that were
aborted in the segment and a checksum over everything, and is read through a memory map. Offsets and positions rise
strictly, timestamps never fall.
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
"""Number of entries, number of aborted transactions, magic, checksum of everything before the checksum."""
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
    """The last stable offset when the marker was appended: transactions aborted later start at or after it."""


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
        """Appends one entry and returns its stored form."""
        self.deltas.append(offset_delta)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_ms)
        return ENTRY.pack(offset_delta, position, max_timestamp_ms)

    def position_for_offset(self, offset_delta: int) -> int:
        """The position from which to search for an offset."""
        at = bisect_right(self.deltas, offset_delta) - 1
        return self.positions[at] if at >= 0 else 0

    def position_for_time(self, timestamp_ms: int) -> int:
        """The position from which to search for the first record with at least this timestamp."""
        at = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before(self, position: int) -> int:
        """The last indexed position that is not after `position`."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def entry_before(self, offset_delta: int) -> Entry | None:
        """The last entry of a batch that begins before an offset."""
        at = bisect_left(self.deltas, offset_delta) - 1
        return Entry(self.deltas[at], self.positions[at], self.timestamps[at]) if at >= 0 else None

    def cut(self, position: int) -> None:
        """Removes entries at or after a position."""
        keep = bisect_left(self.positions, position)
        del self.deltas[keep:]
        del self.positions[keep:]
        del self.timestamps[keep:]

    def sealed(self) -> bytes:
        """Encodes the finished index as its whole file."""
        out = bytearray()
        entries = zip(self.deltas, self.positions, self.timestamps, strict=True)
        # Many entries in one call: no request is served while the index of a full segment is encoded.
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
        """Loads a sealed index into memory to append to it, as after a clean shutdown."""
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
        """The number of entries whose field is below (or at) the limit."""
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
        """The position from which to search for an offset."""
        return self._last_where(0, offset_delta, inclusive=True)

    def position_for_time(self, timestamp_ms: int) -> int:
        """The position from which to search for the first record with at least this timestamp."""
        return self._last_where(2, timestamp_ms, inclusive=False)

    def position_before(self, position: int) -> int:
        """The last indexed position that is not after `position`."""
        return self._last_where(1, position, inclusive=True)


class MappedIndex(SealedIndex):
    """A sealed index over a memory map; its owner closes it."""

    __slots__ = ("_map",)

    def __init__(self, file: File) -> None:
        self._map: FileMap = file.map_readonly()
        try:
            super().__init__(self._map.view, file.path)
        except Damaged:
            self._map.close()
            raise

    def close(self) -> None:
        """Releases the map."""
        self._data = b""
        self._map.close()
