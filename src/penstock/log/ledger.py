"""The ledger: the offset up to which each log of a data directory is known to be on stable storage.

A round of group commit syncs the data files first, then appends one entry per log here and syncs the ledger; only then
are its records acknowledged. So after a crash every byte is of one of two kinds: below its ledger entry a log must be
intact, and any difference is reported as damage; above it nothing was promised, and a torn tail is cut off. An entry
also carries a running checksum of the bytes that batch checksums do not cover (the first 21 bytes of each batch).

Entries of one write, or of several that wait for their sync, may reach the disk in any order, a sector at a time. So an
appended entry lies within one sector: it is whole or was never written, and an entry that is neither is damage.

Two files of fixed size are used in turns. Both are allocated at the beginning, so that a full disk does not prevent an
entry from being written. If it does nevertheless, nothing is promised, and the same entries may be recorded again.
"""

from contextlib import suppress
from errno import EIO
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.space import full_or, is_full
from penstock.model.ports import Disk, File

_ENTRY = Struct(">IIqIqIq")
"""The file's turn number, then the fields of LedgerEntry."""
_CRC = Struct(">I")
ENTRY_BYTES = _ENTRY.size + _CRC.size
SECTOR_BYTES = 512
"""The unit that a disk writes whole or not at all; larger sectors are multiples of it."""

LEDGER_BYTES = 4 * 1024 * 1024
"""The size of each of the two files; larger if there are very many logs."""

_BEGIN = 0xFFFFFFFF
"""Replaces the log number in a file's first entry, whose end offset is the number of entries carried over."""


class LedgerEntry(NamedTuple):
    """One log's state on stable storage."""

    log_number: int
    segment_base: int
    position: int
    end_offset: int
    header_sum: int
    high_watermark: int


class _Turn(NamedTuple):
    """The content of one of the two files."""

    number: int
    entries: dict[int, LedgerEntry]
    bad_positions: list[int]
    torn_positions: list[int]
    live_bytes: int


class Ledger:
    """The current entries, and the file to which the next ones are appended."""

    def __init__(self, disk: Disk, size_bytes: int = LEDGER_BYTES) -> None:
        self._disk = disk
        self._size_bytes = size_bytes
        self._file: File | None = None
        self._is_turning = False
        self._has_lasting_room = False
        self._failed: File | None = None
        self.turn = 0
        self.entries: dict[int, LedgerEntry] = {}
        self.damage: list[str] = []
        self.torn: list[str] = []
        self.live_bytes = 0
        """Bytes of the file in use."""

    @staticmethod
    def path_of(turn: int) -> str:
        """The file that a turn uses."""
        return f"ledger-{turn % 2}"

    def load(self) -> None:
        """Reads the newest file that is intact. A torn end is normal; a bad entry before good ones is damage."""
        turns: list[_Turn] = []
        for path in (self.path_of(0), self.path_of(1)):
            turn = self._read(path)
            if turn is not None:
                turns.append(turn)
            elif self._disk.exists(path) and not self._is_blank(path):
                self.torn.append(f"{path}: is not whole and was not used")
        if not turns:
            return
        newest = max(turns)
        self.turn = newest.number
        self.entries = newest.entries
        self.live_bytes = newest.live_bytes
        path = self.path_of(newest.number)
        self.damage = [f"{path}: the entry at position {position} is damaged" for position in newest.bad_positions]
        self.torn += [f"{path}: the entry at position {position} is torn" for position in newest.torn_positions]

    def _read(self, path: str) -> _Turn | None:
        if not self._disk.exists(path):
            return None
        file = self._disk.open(path)
        data = file.read(0, file.size())
        file.close()
        number, carried, live_bytes = -1, 0, ENTRY_BYTES
        entries: dict[int, LedgerEntry] = {}
        bad: list[int] = []
        suspects: list[int] = []
        for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
            turn, *fields = _ENTRY.unpack_from(data, position)
            is_whole = _CRC.unpack_from(data, position + _ENTRY.size)[0] == crc32c(
                data[position : position + _ENTRY.size]
            )
            if position == 0:
                if not is_whole or fields[0] != _BEGIN:
                    return None
                number, carried = turn, fields[3]
                if len(data) < (1 + carried) * ENTRY_BYTES:
                    return None
            elif is_whole and turn == number:
                bad, suspects = bad + suspects, []
                entries[fields[0]] = LedgerEntry(*fields)
                live_bytes = position + ENTRY_BYTES
            elif position <= carried * ENTRY_BYTES:
                return None
            elif _crosses_sectors(position):
                continue  # no entry is written across sectors; these bytes are ignored
            elif is_whole and turn < number:
                break  # left over from an earlier turn: this turn ends before it
            elif any(data[position : position + ENTRY_BYTES]):
                suspects.append(position)
        return _Turn(number, entries, bad, suspects, live_bytes) if len(data) >= ENTRY_BYTES else None

    def _is_blank(self, path: str) -> bool:
        """Whether the file was only allocated and never written."""
        file = self._disk.open(path)
        try:
            return not any(file.read(0, file.size()))
        finally:
            file.close()

    def keep_room(self) -> None:
        """Allocates the other file at its full size, if there is space now."""
        with suppress(OSError):  # the next turn uses whatever space it finds
            file = self._disk.open(self.path_of(self.turn + 1), create=True)
            try:
                _enlarge(file, self._size_bytes)
            finally:
                file.close()

    async def outlast(self) -> None:
        """Makes the next turn's space survive a power cut; needed once, because turns alternate between two files."""
        if self._has_lasting_room:
            return
        with suppress(OSError):  # retried later
            file = self._disk.open(self.path_of(self.turn + 1))
            try:
                await file.sync()
            finally:
                file.close()
            await self._disk.sync_dir("")
            self._has_lasting_room = True

    async def take_turn(self) -> None:
        """Switches to the other file, with the current entries; the old one stays valid until the new one is whole."""
        turn = self.turn + 1
        begin = LedgerEntry(_BEGIN, 0, 0, len(self.entries), 0, 0)
        data = _encode(turn, [begin, *self.entries.values()])
        try:
            file = self._disk.open(self.path_of(turn), create=True)
        except OSError as error:
            raise full_or(error) from error
        try:
            _enlarge(file, max(self._size_bytes, 4 * len(data)))
            file.write(0, data)
        except OSError as error:
            file.close()
            raise full_or(error) from error  # the turn is not taken: a retry must not overwrite the good file
        self.close()
        self.turn, self._file, self.live_bytes = turn, file, len(data)
        self._size_bytes = max(self._size_bytes, file.size())
        self._is_turning = True
        await self._sync(file)
        self._is_turning = False

    async def record(self, entries: list[LedgerEntry]) -> None:
        """Appends entries; returns when they are on stable storage. May be called again before, and after DiskFull."""
        for entry in entries:
            self.entries[entry.log_number] = entry
        data = _encode_within_sectors(self.turn, entries, self.live_bytes)
        is_full = self.live_bytes + len(data) > self._size_bytes
        if self._file is None or (is_full and not self._is_turning):
            await self.take_turn()
            return
        # While a turn is being taken the other file must stay unchanged, so this one receives every entry, even beyond
        # its size; a sync of it also syncs the turn.
        try:
            self._file.write(self.live_bytes, data)
        except OSError as error:
            raise full_or(error) from error
        self.live_bytes += len(data)
        await self._sync(self._file)

    async def _sync(self, file: File) -> None:
        is_turning = self._is_turning
        file.pin()  # a later call may switch to the other file meanwhile
        try:
            await file.sync()
        except OSError:
            self._failed = file
            raise
        finally:
            file.unpin()
        if self._failed is file:  # in a concurrent call: the data that it covered is lost, perhaps ours too
            raise OSError(EIO, "an earlier sync failed", file.path)
        if is_turning:
            await self._disk.sync_dir("")

    def forget(self, log_number: int) -> None:
        """Drops the entry of a removed log, so that it is not carried over."""
        self.entries.pop(log_number, None)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _encode(turn: int, entries: list[LedgerEntry]) -> bytes:
    out = bytearray()
    for entry in entries:
        body = _ENTRY.pack(turn, *entry)
        out += body
        out += _CRC.pack(crc32c(body))
    return bytes(out)


def _encode_within_sectors(turn: int, entries: list[LedgerEntry], position: int) -> bytes:
    out = bytearray()
    for entry in entries:
        if _crosses_sectors(position + len(out)):
            out += bytes(ENTRY_BYTES)
        out += _encode(turn, [entry])
    return bytes(out)


def _crosses_sectors(position: int) -> bool:
    return position % SECTOR_BYTES > SECTOR_BYTES - ENTRY_BYTES


def _enlarge(file: File, size_bytes: int) -> None:
    """Extends a file with zeros that occupy space; on a full disk as far as possible."""
    missing = size_bytes - file.size()
    if missing > 0:
        try:
            file.write(file.size(), bytes(missing))
        except OSError as error:
            if not is_full(error):
                raise
