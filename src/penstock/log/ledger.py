"""The ledger: how far each log of a data directory is known to be on stable storage.

A round of group commit syncs the data files first, then appends one entry per log here and syncs the ledger; only then
are its records acknowledged. So after a crash there are two kinds of bytes and no doubt between them: below its entry a
log must be whole, and whatever is not is damage that is reported; above it nothing was promised and a torn tail is cut.
An entry also carries a running checksum of what the batches' checksums do not cover (the first 21 bytes of each).

Entries of one write, or of several that wait for their sync, may reach the disk in any order, a sector at a time. So an
appended entry lies within one sector: it is whole or was never written, and one that is neither is damage.

Two files of fixed size take turns, both there from the beginning, so that a full disk cannot stop a promise from being
written down. Where it does all the same, nothing is promised, and the same may be recorded again.
"""

from contextlib import suppress
from errno import EIO
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.space import full_or, is_full
from penstock.model.ports import Disk, File

_ENTRY = Struct(">IIqIqIq")
"""The turn of the file, then the fields of LedgerEntry."""
_CRC = Struct(">I")
ENTRY_BYTES = _ENTRY.size + _CRC.size
SECTOR_BYTES = 512
"""What a disk writes whole or not at all; larger sectors are multiples of it."""

LEDGER_BYTES = 4 * 1024 * 1024
"""The size of each of the two files; larger if there are very many logs."""

_BEGIN = 0xFFFFFFFF
"""In place of a log's number: a file's first entry, whose end offset says how many entries were carried over."""


class LedgerEntry(NamedTuple):
    """One log's state on stable storage."""

    log_number: int
    segment_base: int
    position: int
    end_offset: int
    header_sum: int
    high_watermark: int


class _Turn(NamedTuple):
    """What one of the two files says."""

    number: int
    entries: dict[int, LedgerEntry]
    bad_positions: list[int]
    torn_positions: list[int]
    live_bytes: int


class Ledger:
    """The entries in force, and the file that receives the next ones."""

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
        """How far the file is filled."""

    @staticmethod
    def path_of(turn: int) -> str:
        """The file whose turn it is."""
        return f"ledger-{turn % 2}"

    def load(self) -> None:
        """Reads the newer of the two files that is whole. A torn end is normal; a bad entry before good ones is not."""
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
                continue  # such places are left out, whatever lies there
            elif is_whole and turn < number:
                break  # left over from an earlier turn: this one has not come so far
            elif any(data[position : position + ENTRY_BYTES]):
                suspects.append(position)
        return _Turn(number, entries, bad, suspects, live_bytes) if len(data) >= ENTRY_BYTES else None

    def _is_blank(self, path: str) -> bool:
        """Whether the file was only made, so that its room is there."""
        file = self._disk.open(path)
        try:
            return not any(file.read(0, file.size()))
        finally:
            file.close()

    def keep_room(self) -> None:
        """Makes the other file as large as it will be, if there is room for that now."""
        with suppress(OSError):  # a turn takes what it finds
            file = self._disk.open(self.path_of(self.turn + 1), create=True)
            try:
                _enlarge(file, self._size_bytes)
            finally:
                file.close()

    async def outlast(self) -> None:
        """Has a power cut leave the room for the next turn; once, as later ones go back and forth between two files."""
        if self._has_lasting_room:
            return
        with suppress(OSError):  # another time
            file = self._disk.open(self.path_of(self.turn + 1))
            try:
                await file.sync()
            finally:
                file.close()
            await self._disk.sync_dir("")
            self._has_lasting_room = True

    async def take_turn(self) -> None:
        """Goes on in the other file, with the entries in force; the old one stays valid until the new one is whole."""
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
            raise full_or(error) from error  # the turn has not been taken: the next try must not take the good file
        self.close()
        self.turn, self._file, self.live_bytes = turn, file, len(data)
        self._size_bytes = max(self._size_bytes, file.size())
        self._is_turning = True
        await self._sync(file)
        self._is_turning = False

    async def record(self, entries: list[LedgerEntry]) -> None:
        """Returns when the entries are on stable storage. May be called again before that, and after DiskFull."""
        for entry in entries:
            self.entries[entry.log_number] = entry
        data = _encode_within_sectors(self.turn, entries, self.live_bytes)
        is_full = self.live_bytes + len(data) > self._size_bytes
        if self._file is None or (is_full and not self._is_turning):
            await self.take_turn()
            return
        # While a turn is being taken the other file must stay as it is, so this one takes everything, even beyond its
        # size; whoever syncs it syncs the turn as well.
        try:
            self._file.write(self.live_bytes, data)
        except OSError as error:
            raise full_or(error) from error
        self.live_bytes += len(data)
        await self._sync(self._file)

    async def _sync(self, file: File) -> None:
        is_turning = self._is_turning
        file.pin()  # a later call may go on in the other file meanwhile
        try:
            await file.sync()
        except OSError:
            self._failed = file
            raise
        finally:
            file.unpin()
        if self._failed is file:  # of a call beside this one: what it covered is lost, and ours may be a part of that
            raise OSError(EIO, "an earlier sync failed", file.path)
        if is_turning:
            await self._disk.sync_dir("")

    def forget(self, log_number: int) -> None:
        """A log is gone; its entry is not carried over."""
        self.entries.pop(log_number, None)

    def close(self) -> None:
        """Gives the descriptor back."""
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
    """Fills a file up with zeros that take room; on a full disk as far as it goes."""
    missing = size_bytes - file.size()
    if missing > 0:
        try:
            file.write(file.size(), bytes(missing))
        except OSError as error:
            if not is_full(error):
                raise
