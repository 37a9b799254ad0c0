"""Snapshots of the cluster's state on disk: `snapshots/<end offset>-<epoch>.checkpoint`, laid out like Kafka's.

A snapshot is a row of batches: a header with the voter set, the state's records, a footer. It appears under its name
only when it is whole and synced; what is being written or received lies aside, as `.part`, and is worth nothing after
a crash.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.model.errors import CorruptBatch, TornBatch
from penstock.model.ports import Disk
from penstock.raft import control
from penstock.raft.ports import Chunk, SnapshotId
from penstock.raft.replicas import VoterSet
from penstock.records.header import batches
from penstock.server.metadata_log import whole_batches

SNAPSHOTS: Final = "snapshots"
HEADER_BYTES_MAX: Final = 64 * 1024
READ_BYTES: Final = 256 * 1024
"""More than most batches of a snapshot; a larger one is read to its end all the same."""
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"


def path_of(snapshot: SnapshotId) -> str:
    """Where a snapshot lies."""
    return f"{SNAPSHOTS}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


class SnapshotShelf:
    """The raft core's `Snapshots` on a disk. Made by `open_shelf`."""

    def __init__(self, disk: Disk, ids: list[SnapshotId]) -> None:
        self._disk = disk
        self.ids = ids
        self._voters = {each: self._read_voters(each) for each in ids}

    def voters_of(self, snapshot: SnapshotId) -> VoterSet:
        """The voter set that a snapshot holds."""
        return self._voters[snapshot]

    def read(self, snapshot: SnapshotId, position: int, bytes_max: int) -> Chunk | None:
        """A piece of a snapshot; None if there is no such snapshot."""
        if snapshot not in self._voters:
            return None
        file = self._disk.open(path_of(snapshot))
        try:
            return Chunk(file.read(position, bytes_max), file.size())
        finally:
            file.close()

    def batches_of(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """A snapshot in pieces of whole batches. CorruptBatch where it is not what was written."""
        file = self._disk.open(path_of(snapshot))
        try:
            position, size_bytes, read_bytes = 0, file.size(), READ_BYTES
            while position < size_bytes:
                piece = file.read(position, read_bytes)
                try:
                    whole_bytes = sum(batch.size_bytes for batch in whole_batches(piece))
                except TornBatch:
                    if position + read_bytes >= size_bytes:
                        raise
                    read_bytes *= 2
                    continue
                yield piece[:whole_bytes]
                position += whole_bytes
        finally:
            file.close()

    def receive(self, snapshot: SnapshotId, position: int, data: bytes) -> int:
        """Keeps a piece of the leader's snapshot aside; how many bytes of it are there."""
        file = self._disk.open(path_of(snapshot) + _PART, create=True)
        try:
            file.truncate(position)
            file.write(position, data)
        finally:
            file.close()
        return position + len(data)

    async def write(self, snapshot: SnapshotId, voters: VoterSet, data: Iterable[bytes], timestamp_ms: int) -> None:
        """Writes a snapshot of this node's own aside; `data` are batches. Others get their turn between them."""
        header = [control.snapshot_header(timestamp_ms), control.kraft_version(), control.voter_set(voters)]
        position = self.receive(snapshot, 0, bytes(control.control_batch(header, timestamp_ms)))
        for piece in data:
            position = self.receive(snapshot, position, piece)
            await asyncio.sleep(0)
        self.receive(snapshot, position, bytes(control.control_batch([control.snapshot_footer()], timestamp_ms)))

    def discard(self, snapshot: SnapshotId) -> None:
        """Removes what lies aside."""
        self._disk.unlink(path_of(snapshot) + _PART)

    async def finish(self, snapshot: SnapshotId) -> None:
        """Puts what lies aside under its name, durably."""
        path = path_of(snapshot)
        file = self._disk.open(path + _PART)
        try:
            await file.sync()
        finally:
            file.close()
        self._disk.rename(path + _PART, path)
        await self._disk.sync_dir(SNAPSHOTS)
        self._voters[snapshot] = self._read_voters(snapshot)
        self.ids.append(snapshot)

    def drop_before(self, end_offset: int) -> None:
        """Removes snapshots that end before an offset."""
        for snapshot in [each for each in self.ids if each.end_offset < end_offset]:
            self._disk.unlink(path_of(snapshot))
            del self._voters[snapshot]
        self.ids = [each for each in self.ids if each.end_offset >= end_offset]

    def _read_voters(self, snapshot: SnapshotId) -> VoterSet:
        file = self._disk.open(path_of(snapshot))
        try:
            head = file.read(0, HEADER_BYTES_MAX)
        finally:
            file.close()
        for batch in batches(head):
            if not batch.is_intact:
                break
            for found in control.voters_in(batch):
                return found.voters
            break
        raise CorruptBatch(f"{path_of(snapshot)} does not begin with a voter set; restore it, or empty the directory")


async def open_shelf(disk: Disk) -> SnapshotShelf:
    """The snapshots on a disk, oldest first; what a crash left aside is removed."""
    disk.make_dir(SNAPSHOTS)
    await disk.sync_dir("")
    ids = []
    for name in disk.list(SNAPSHOTS):
        if found := _NAME.fullmatch(name):
            ids.append(SnapshotId(int(found[1]), int(found[2])))
        else:
            disk.unlink(f"{SNAPSHOTS}/{name}")
    return SnapshotShelf(disk, sorted(ids))
