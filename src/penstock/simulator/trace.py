"""The events of a run as one hash: equal hashes mean equal runs.

Every row carries the time and the loop's count of events, so that runs that differ anywhere differ in the next row.
"""

from hashlib import blake2b
from zlib import crc32

from penstock.simulator.loop import VirtualLoop

FLUSH_ROWS = 256


class Trace:
    """The rows of one run. Only their hash is kept, unless `is_kept`."""

    def __init__(self, loop: VirtualLoop, *, is_kept: bool = False) -> None:
        self._loop = loop
        self._hash = blake2b(digest_size=16)
        self._rows: list[str] = []
        self.kept: list[str] | None = [] if is_kept else None
        self.count = 0

    def note(self, kind: str, node: str, *details: object) -> None:
        """Adds a row. Details are numbers, strings or bytes: no object whose text contains a memory address."""
        self.count += 1
        loop = self._loop
        row = f"{int(loop.time() * 1e9)} {loop.events} {kind} {node}"
        for detail in details:
            row += f" {len(detail)}:{crc32(detail):08x}" if isinstance(detail, bytes) else f" {detail}"
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self._flush()

    def digest(self) -> str:
        """The hash of all rows so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        if self._rows:
            self._hash.update(("\n".join(self._rows) + "\n").encode())
            if self.kept is not None:
                self.kept += self._rows
            self._rows = []
