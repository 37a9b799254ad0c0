"""The disk of a simulated replica: a log, a shelf of snapshots and the quorum state, with the effects of power cuts.

One entry is one offset. Appended entries survive once `SyncLog` is done, a truncation once it is done; a crash in
between leaves either state, and any prefix of the unsynced entries.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from penstock.raft.ports import Chunk, EpochEnd, LeaderChange, SnapshotId
from penstock.raft.replicas import VotersAt, VoterSet
from penstock.raft.roles import QuorumState


class Entry(NamedTuple):
    epoch: int
    content: Any


class SimulatedLog:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start_offset = 0
        self.end_offset = 0
        self.synced_end = 0
        self.start_epoch = 0
        """The epoch of the record before the start."""
        self.last_epoch = 0
        self.cuts = 0
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def append(self, epoch: int, batch: Any, now: int) -> int:
        self._add(Entry(epoch, batch))
        return self.end_offset

    def append_control(self, epoch: int, records: Sequence[LeaderChange | VoterSet], now: int) -> int:
        for record in records:
            self._add(Entry(epoch, record))
        return self.end_offset

    def append_fetched(self, records: tuple[int, Sequence[Entry]], now: int) -> list[VotersAt]:
        base, entries = records
        assert base == self.end_offset, f"fetched records begin at {base}, the log ends at {self.end_offset}"
        found = []
        for entry in entries:
            if isinstance(entry.content, VoterSet):
                found.append(VotersAt(self.end_offset, entry.content))
            self._add(entry)
        return found

    def _add(self, entry: Entry) -> None:
        if entry.epoch != self.last_epoch or not self._epochs:
            assert entry.epoch >= self.last_epoch, "epochs go back"
            self._epochs.append(entry.epoch)
            self._starts.append(self.end_offset)
            self.last_epoch = entry.epoch
        self.entries.append(entry)
        self.end_offset += 1

    def read(self, offset: int, bytes_max: int) -> tuple[int, Sequence[Entry]]:
        at = offset - self.start_offset
        return offset, tuple(self.entries[at : at + bytes_max])

    def epoch_before(self, offset: int) -> int:
        if offset == self.start_offset:
            return self.start_epoch
        return self.entries[offset - 1 - self.start_offset].epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        at = bisect_right(self._epochs, epoch) - 1
        if at < 0:
            return EpochEnd(self.start_epoch, self.start_offset)
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[at], end)

    def voter_sets(self) -> Iterable[VotersAt]:
        for offset, entry in enumerate(self.entries, self.start_offset):
            if isinstance(entry.content, VoterSet):
                yield VotersAt(offset, entry.content)

    # --- operations of the driver ---------------------------------------------------------------------------------

    def cut(self, end_offset: int) -> None:
        assert end_offset >= self.start_offset
        del self.entries[end_offset - self.start_offset :]
        self.end_offset = end_offset
        self.synced_end = min(self.synced_end, end_offset)
        self.cuts += 1
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.last_epoch = self._epochs[-1] if self._epochs else self.start_epoch

    def trim(self, start_offset: int) -> None:
        self.start_epoch = self.epoch_before(start_offset)
        del self.entries[: start_offset - self.start_offset]
        self.start_offset = start_offset
        keep = bisect_right(self._starts, start_offset) - 1
        if keep > 0:
            del self._starts[:keep], self._epochs[:keep]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset
        if not self.entries:
            self._starts, self._epochs = [], []

    def begin_at(self, snapshot: SnapshotId) -> None:
        self.entries = []
        self._epochs, self._starts = [], []
        self.start_offset = self.end_offset = self.synced_end = snapshot.end_offset
        self.start_epoch = self.last_epoch = snapshot.epoch
        self.cuts += 1

    def lose_power(self, random: Random) -> None:
        if self.synced_end < self.end_offset:
            self.cut(random.randint(max(self.synced_end, self.start_offset), self.end_offset))
            self.synced_end = self.end_offset


class Snapshot(NamedTuple):
    """A snapshot that a state machine wrote."""

    data: bytes
    voters: VoterSet


class Shelf:
    def __init__(self) -> None:
        self.ids: list[SnapshotId] = []
        self.snapshots: dict[SnapshotId, Snapshot] = {}
        self.received = b""

    def voters_of(self, snapshot: SnapshotId) -> VoterSet:
        return self.snapshots[snapshot].voters

    def read(self, snapshot: SnapshotId, position: int, bytes_max: int) -> Chunk | None:
        found = self.snapshots.get(snapshot)
        return None if found is None else Chunk(found.data[position : position + bytes_max], len(found.data))

    def receive(self, snapshot: SnapshotId, position: int, data: bytes) -> int:
        self.received = self.received[:position] + data
        return len(self.received)

    def put(self, snapshot: SnapshotId, content: Snapshot) -> None:
        self.ids.append(snapshot)
        self.snapshots[snapshot] = content

    def drop_before(self, end_offset: int) -> None:
        self.ids = [each for each in self.ids if each.end_offset >= end_offset]
        self.snapshots = {each: self.snapshots[each] for each in self.ids}


class Disk:
    """The durable state of a machine."""

    def __init__(self, directory_id: bytes) -> None:
        self.directory_id = directory_id
        self.state = QuorumState()
        self.log = SimulatedLog()
        self.shelf = Shelf()

    def install(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """Installs a snapshot in two steps; a crash may come between them."""
        self.put_alone(snapshot, content)
        self.recover()

    def put_alone(self, snapshot: SnapshotId, content: Snapshot) -> None:
        self.shelf.put(snapshot, content)

    def recover(self) -> None:
        """Completes an interrupted installation: a snapshot that is not part of the log's history replaces the log."""
        if not self.shelf.ids:
            return
        newest = self.shelf.ids[-1]
        if newest.end_offset > self.log.end_offset or self.log.epoch_before(newest.end_offset) != newest.epoch:
            self.log.begin_at(newest)
            self.shelf.drop_before(newest.end_offset)
