"""Unsynced changes of one file: readers see them, a power cut loses them.

`base` holds the content that survives a power cut; `_pages` holds whole pages of the visible content wherever it may
differ. A page may only be dropped when base has the same content. Calls since the last sync are kept in order in
`_calls`: a sync repeats them on base, a torn power cut repeats some of their sectors.
"""

from itertools import islice
from random import Random
from typing import TypeAlias

from penstock.model.ports import Buffer, File

SECTOR_BYTES = 512
PAGE_BYTES = 8 * 1024

Call: TypeAlias = tuple[int, bytes | None]
"""A write of bytes at a position; without bytes, a truncation to that size."""


class Unsynced:
    """The visible content of a file, on top of the file that would survive."""

    __slots__ = ("_base_end", "_calls", "_has_dropped", "_pages", "applied", "base", "called", "size_bytes")

    def __init__(self, base: File) -> None:
        self.base = base
        self.size_bytes = base.size()
        self.called = 0
        """Number of calls made."""
        self.applied = 0
        """Number of calls that are durable, or were dropped by a failed sync."""
        self._base_end = self.size_bytes  # the bytes of base are visible only below this position
        self._calls: list[Call] = []
        self._pages: dict[int, bytearray] = {}
        self._has_dropped = False

    @property
    def is_clean(self) -> bool:
        """Whether base has the visible content."""
        return not self._calls and not self._has_dropped

    def read(self, position: int, size_bytes: int) -> bytes:
        """Reads the visible content."""
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        pages = self._pages
        if not pages:
            content = (
                self.base.read(position, min(end, self._base_end) - position) if position < self._base_end else b""
            )
            return content if len(content) == end - position else content + bytes(end - position - len(content))
        pieces: list[bytes | bytearray] = []
        while position < end:
            number, start = divmod(position, PAGE_BYTES)
            step = min(PAGE_BYTES - start, end - position)
            page = pages.get(number)
            pieces.append(self._base_piece(position, step) if page is None else page[start : start + step])
            position += step
        return b"".join(pieces)

    def write(self, position: int, data: Buffer) -> None:
        """Writes data, visible at once."""
        if len(data):
            self._call((position, bytes(data)))

    def truncate(self, size_bytes: int) -> None:
        """Changes the size, visible at once."""
        if size_bytes != self.size_bytes:
            self._call((size_bytes, None))

    def apply(self, target: int) -> None:
        """Makes the calls up to that number durable."""
        count = target - self.applied
        if count <= 0:
            return
        for position, data in islice(self._calls, count):
            if data is None:
                self.base.truncate(position)
            else:
                self.base.write(position, data)
        self._forget(count)
        if not self._has_dropped:
            self._rebase()

    def drop(self, target: int) -> None:
        """Handles a failed sync: the calls up to that number stay visible, and are never written."""
        count = target - self.applied
        if count > 0:
            self._has_dropped = True
            self._forget(count)

    def tear(self, random: Random, chance: float) -> None:
        """Applies a random part of the calls to base, as a device may before a sync, and keeps the calls.

        Size changes persist in order, up to a random one. Of the contents that a sector had since the last sync, any
        may persist. If a truncation does not persist, later writes above its cut do not either: they went to blocks
        that only its metadata would reach.
        """
        if not self._calls:
            return
        sizes = [self.base.size()]
        for position, data in self._calls:
            sizes.append(position if data is None else max(sizes[-1], position + len(data)))
        sizes_kept = random.randrange(len(sizes)) if random.random() >= chance else len(sizes) - 1
        writes: dict[int, list[int]] = {}
        ceiling = max(sizes)
        for number, (position, data) in enumerate(self._calls, 1):
            if data is None:
                if number > sizes_kept and position < sizes[number - 1]:
                    ceiling = min(ceiling, position - position % SECTOR_BYTES)
            else:
                end = min(position + len(data), ceiling)
                for sector in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
                    writes.setdefault(sector, []).append(number)
        last = {
            sector: (numbers[-1] if random.random() < 0.75 else random.choice(numbers))
            for sector, numbers in writes.items()
            if random.random() < chance
        }
        base = self.base
        for number, (position, data) in enumerate(self._calls, 1):
            if data is None:
                if number <= sizes_kept and position < base.size():
                    base.truncate(position)
                continue
            first, end_sector = position // SECTOR_BYTES, -(-(position + len(data)) // SECTOR_BYTES)
            for sector in range(first, end_sector):
                if last.get(sector, 0) >= number:
                    start = max(position, sector * SECTOR_BYTES)
                    base.write(start, data[start - position : (sector + 1) * SECTOR_BYTES - position])
        base.truncate(sizes[sizes_kept])

    def _call(self, call: Call) -> None:
        self._calls.append(call)
        self.called += 1
        self._show(call)

    def _show(self, call: Call) -> None:
        position, data = call
        if data is None:
            self._show_truncate(position)
            return
        view = memoryview(data)
        done, end = 0, position + len(data)
        while position < end:
            number, start = divmod(position, PAGE_BYTES)
            step = min(PAGE_BYTES - start, end - position)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(PAGE_BYTES)
                if step < PAGE_BYTES and number * PAGE_BYTES < self._base_end:
                    page[:] = self._base_piece(number * PAGE_BYTES, PAGE_BYTES)
            page[start : start + step] = view[done : done + step]
            done += step
            position += step
        self.size_bytes = max(self.size_bytes, end)

    def _show_truncate(self, size_bytes: int) -> None:
        if size_bytes < self.size_bytes:
            number, start = divmod(size_bytes, PAGE_BYTES)
            for key in [key for key in self._pages if key >= number]:
                if key > number or start == 0:
                    del self._pages[key]
                else:
                    self._pages[key][start:] = bytes(PAGE_BYTES - start)
            self._base_end = min(self._base_end, size_bytes)
        self.size_bytes = size_bytes

    def _base_piece(self, position: int, size_bytes: int) -> bytes:
        """The visible bytes of base, then zeros."""
        wanted = min(size_bytes, self._base_end - position)
        content = self.base.read(position, wanted) if wanted > 0 else b""
        return content.ljust(size_bytes, b"\0")

    def _forget(self, count: int) -> None:
        del self._calls[:count]
        self.applied += count

    def _rebase(self) -> None:
        """Rebuilds the visible content from base and the remaining calls."""
        self._pages.clear()
        self.size_bytes = self._base_end = self.base.size()
        for call in self._calls:
            self._show(call)
