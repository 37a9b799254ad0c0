"""The disk of a simulated broker: logs with the effects of kills and power cuts. One entry is one offset.

Batches stay whole, as in the real log: a truncation, a loss and the content of a fetch end at the end of a batch. A log
may start inside a batch.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from penstock.log.epochs import EpochHistory, EpochStart
from penstock.model.errors import StorageError
from penstock.replication.ports import Key
from tests.simulation.kit.invariants import broken


class Entry(NamedTuple):
    epoch: int
    value: int
    place: int = 0
    """The number of records before it in its batch."""
    left: int = 0
    """The number of records after it in its batch."""


class Records(NamedTuple):
    """The records in a fetch response."""

    base_offset: int
    entries: Sequence[Entry]


class ModelLog:
    """A `ReplicaLog`. Under durability "fsync" only synced records count."""

    def __init__(self, *, waits_for_sync: bool) -> None:
        self.waits_for_sync = waits_for_sync
        self.entries: list[Entry] = []
        self.front: list[Entry] = []
        """The records of the first batch before the start of the log."""
        self.has_failed = False
        """A sync or a write has failed: nothing is written any more, and unsynced records may be lost."""
        self.start_offset = 0
        self.written_end = 0
        self.synced_end = 0
        self.high_watermark = 0
        self.saved_high_watermark = 0
        self.epochs = EpochHistory()
        self.cuts = 0
        self.agreed_end = 0
        """The end up to which it is known to agree with the committed records: a cache of the checks."""

    @property
    def durable_end(self) -> int:
        return self.synced_end if self.waits_for_sync else self.written_end

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def append(self, epoch: int, *values: int) -> int:
        """Appends a batch as a leader; returns its first offset."""
        base_offset = self.written_end
        for place, value in enumerate(values):
            self._add(Entry(epoch, value, place, len(values) - 1 - place))
        return base_offset

    def append_replicated(self, data: Records, *, now_ms: int) -> int:
        if self.has_failed:
            raise StorageError("the log is offline")
        entries = data.entries
        if data.base_offset != self.written_end:
            before = self.written_end - data.base_offset
            is_inside = 0 < before < len(entries) and entries[before].place == before
            if self.entries or not is_inside:  # only a log that begins inside a batch accepts one from before its end
                broken(
                    "LogMatching", f"records from {data.base_offset} on came for a log that ends at {self.written_end}"
                )
            self.front, entries = list(entries[:before]), entries[before:]
        for entry in entries:
            if entry.epoch < self.epochs.latest:
                broken("LogMatching", f"a record of epoch {entry.epoch} came for a log that is at {self.epochs.latest}")
            self._add(entry)
        return self.written_end

    def _add(self, entry: Entry) -> None:
        if entry.epoch > self.epochs.latest:
            self.epochs.begin(entry.epoch, self.written_end)
        self.entries.append(entry)
        self.written_end += 1

    def read(self, offset: int, entries_max: int) -> Records | None:
        """Whole batches, starting with the one that holds the offset, which is returned whatever its size."""
        at = offset - self.start_offset
        if at >= len(self.entries):
            return None
        place = self.entries[at].place
        end = max(at + self.entries[at].left + 1, min(at - place + entries_max, len(self.entries)))
        last = self.entries[end - 1]
        if last.left:
            end -= last.place + 1
        end = max(end, at + self.entries[at].left + 1)
        found = (self.front + self.entries[:end])[len(self.front) + at - place :]
        return Records(offset - place, tuple(found))

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.written_end))

    # --- operations of the driver ---------------------------------------------------------------------------------

    def cut(self, end_offset: int) -> None:
        end_offset = max(self.start_offset, min(end_offset, self.written_end))
        if end_offset < self.written_end:
            end_offset = max(self.start_offset, end_offset - self.entry(end_offset).place)
        if end_offset == self.start_offset:
            self.front = []
        del self.entries[end_offset - self.start_offset :]
        self.written_end = end_offset
        self.synced_end = min(self.synced_end, end_offset)
        self.high_watermark = max(self.start_offset, min(self.high_watermark, end_offset))
        self.agreed_end = min(self.agreed_end, end_offset)
        self.epochs.cut_end(end_offset)
        self.cuts += 1

    def restart(self, offset: int) -> None:
        self.entries = []
        self.front = []
        self.start_offset = self.written_end = self.synced_end = self.high_watermark = offset
        self.agreed_end = min(self.agreed_end, offset)
        self.epochs = EpochHistory()
        self.cuts += 1

    def trim(self, start_offset: int) -> None:
        start_offset = min(start_offset, self.high_watermark)
        if start_offset > self.start_offset:
            gone = start_offset - self.start_offset
            place = self.entries[gone].place if gone < len(self.entries) else 0
            self.front = (self.front + self.entries[:gone])[-place:] if place else []
            del self.entries[:gone]
            self.start_offset = start_offset
            self.epochs.cut_start(start_offset)
            self.synced_end = max(self.synced_end, start_offset)

    def synced(self, end_offset: int, cuts: int) -> None:
        if cuts == self.cuts and not self.has_failed:
            self.synced_end = max(self.synced_end, end_offset)
            self.saved_high_watermark = self.high_watermark

    def die(self) -> None:
        """Discards memory: the high watermark is the last saved one, the epochs are those of the records."""
        self.has_failed = False
        self.high_watermark = max(self.start_offset, min(self.saved_high_watermark, self.written_end))
        self.epochs = EpochHistory(_epochs_of(self.start_offset, self.entries))

    def lose_power(self, random: Random) -> int:
        """Keeps a random prefix of the unsynced records; returns the number of lost ones."""
        before = self.written_end
        if self.synced_end < before:
            self.cut(random.randint(self.synced_end, before))
        self.synced_end = self.written_end
        self.die()
        return before - self.written_end


def _epochs_of(start_offset: int, entries: list[Entry]) -> list[EpochStart]:
    found: list[EpochStart] = []
    for offset, entry in enumerate(entries, start_offset):
        if not found or entry.epoch > found[-1].epoch:
            found.append(EpochStart(entry.epoch, offset))
    return found


class Disk:
    """The durable state of a broker."""

    def __init__(self) -> None:
        self.logs: dict[Key, ModelLog] = {}
        self.impaired: dict[Key, None] = {}
        """Partitions of which the broker may have lost records: a note of the faults."""
        self.last_epoch = -1
        """The broker epoch since which nothing was lost; -1 if records may have been lost."""
