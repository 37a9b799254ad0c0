"""Metadata snapshots on disk: `snapshots/<end offset>-<epoch>.checkpoint`, in Kafka's layout.

A snapshot is a sequence of batches: a header with the voter set, the records of the image, a footer. It gets its name
only once it is complete and synced. A snapshot that is being written or received is a `.part` file, which is removed
after a crash.
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
from penstock.server.quorum.metadata_log import whole_batches

SNAPSHOTS: Final = "snapshots"
HEADER_BYTES_MAX: Final = 64 * 1024
READ_BYTES: Final = 256 * 1024
"""More than the size of most batches of a snapshot; a larger batch is read with a larger buffer."""
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"


def path_of(snapshot: SnapshotId) -> str:
    """The path of a snapshot."""
    return f"{SNAPSHOTS}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


class SnapshotShelf:
    """The raft core's `Snapshots` on a disk. Created by `open_shelf`."""

    def __init__(self, disk: Disk, ids: list[SnapshotId]) -> None:
        self._disk = disk
        self.ids = ids
        self._voters = {each: self._read_voters(each) for each in ids}

    def voters_of(self, snapshot: SnapshotId) -> VoterSet:
        """The voter set that a snapshot holds."""
        return self._voters[snapshot]

    def read(self, snapshot: SnapshotId, position: int, bytes_max: int) -> Chunk | None:
        """Reads a piece of a snapshot; None if there is no such snapshot."""
        if snapshot not in self._voters:
            return None
        file = self._disk.open(path_of(snapshot))
        try:
            return Chunk(file.read(position, bytes_max), file.size())
        finally:
            file.close()

    def batches_of(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Reads a snapshot in pieces of whole batches. Raises CorruptBatch if it is damaged."""
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
        """Writes a piece of the leader's snapshot to the `.part` file; returns the bytes received so far."""
        file = self._disk.open(path_of(snapshot) + _PART, create=True)
        try:
            file.truncate(position)
            file.write(position, data)
        finally:
            file.close()
        return position + len(data)

    async def write(self, snapshot: SnapshotId, voters: VoterSet, data: Iterable[bytes], timestamp_ms: int) -> None:
        """Writes this node's own snapshot to a `.part` file; other work gets a turn after each batch of `data`."""
        header = [control.snapshot_header(timestamp_ms), control.kraft_version(), control.voter_set(voters)]
        position = self.receive(snapshot, 0, bytes(control.control_batch(header, timestamp_ms)))
        for piece in data:
            position = self.receive(snapshot, position, piece)
            await asyncio.sleep(0)
        self.receive(snapshot, position, bytes(control.control_batch([control.snapshot_footer()], timestamp_ms)))

    def discard(self, snapshot: SnapshotId) -> None:
        """Removes the `.part` file."""
        self._disk.unlink(path_of(snapshot) + _PART)

    async def finish(self, snapshot: SnapshotId) -> None:
        """Syncs the `.part` file and renames it to its final name, durably."""
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
        """Removes the snapshots that end before an offset."""
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
    """Opens the snapshots on a disk, oldest first; removes the `.part` files that a crash left."""
    disk.make_dir(SNAPSHOTS)
    await disk.sync_dir("")
    ids = []
    for name in disk.list(SNAPSHOTS):
        if found := _NAME.fullmatch(name):
            ids.append(SnapshotId(int(found[1]), int(found[2])))
        else:
            disk.unlink(f"{SNAPSHOTS}/{name}")
    return SnapshotShelf(disk, sorted(ids))
