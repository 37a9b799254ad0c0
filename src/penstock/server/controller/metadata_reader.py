"""Reads the records for a controller from the log or from a snapshot, in pieces of about a thousand records.

A small read is posted at once. For a larger one the loop serves other work before each piece.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.metadata.declare import MetadataRecord
from penstock.metadata.events import LogRead, ReadFailed, ReadLog, ReadSnapshot
from penstock.model.errors import ProtocolError
from penstock.raft.ports import SnapshotId
from penstock.server.loop.loop_port import Work
from penstock.server.quorum.metadata_log import records_in, whole_batches

READ_BYTES: Final = 256 * 1024
"""Bytes of one read."""
LITTLE_BYTES: Final = 16 * 1024
"""Reads up to this size are posted at once."""
APPLIED_AT_ONCE: Final = 1_000
"""Records of one piece."""


class Readable(Protocol):
    """The metadata log on this node."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Reads whole batches from an offset on, at least one if there is any."""

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Reads the batches of a snapshot, in pieces."""


class MetadataReader:
    """Carries out `ReadLog` and `ReadSnapshot`."""

    def __init__(self, log: Readable, post: Callable[[LogRead | ReadFailed], None]) -> None:
        self._log = log
        self._post = post

    def read(self, wanted: ReadLog) -> Work | None:
        """Posts the records of the log from an offset on."""
        try:
            data = self._log.read(wanted.offset, READ_BYTES)
        except ProtocolError as error:
            self._post(ReadFailed(wanted.number, f"{error}"))
            return None
        pieces = _pieces(wanted, data)
        if len(data) <= LITTLE_BYTES:
            self._tell(wanted.number, pieces)
            return None
        return self._tell_in_turns(wanted.number, pieces)

    async def load(self, wanted: ReadSnapshot) -> None:
        """Posts the records of a snapshot."""
        await self._tell_in_turns(wanted.number, _snapshot_pieces(wanted, self._log.read_snapshot(wanted.snapshot)))

    async def _tell_in_turns(self, number: int, pieces: Iterator[LogRead]) -> None:
        is_over = False
        while not is_over:
            await asyncio.sleep(0)
            is_over = self._tell_one(number, pieces)

    def _tell(self, number: int, pieces: Iterator[LogRead]) -> None:
        while not self._tell_one(number, pieces):
            pass

    def _tell_one(self, number: int, pieces: Iterator[LogRead]) -> bool:
        """Posts one piece; returns whether the read is over."""
        try:
            piece = next(pieces)
        except StopIteration:
            return True
        except ProtocolError as error:
            self._post(ReadFailed(number, f"{error}"))
            return True
        self._post(piece)
        return False


def _pieces(wanted: ReadLog, data: bytes) -> Iterator[LogRead]:
    records: list[MetadataRecord] = []
    end_offset, size_bytes = wanted.offset, 0
    is_large = False
    for batch in whole_batches(data):
        if batch.base_offset >= wanted.end_offset:
            break
        for record in records_in(batch):
            if len(records) >= APPLIED_AT_ONCE:
                yield LogRead(wanted.number, records, None)
                records, is_large = [], True
            records.append(record)
        end_offset = batch.last_offset + 1
        size_bytes += batch.size_bytes
    if is_large:
        yield LogRead(wanted.number, records, None)
        records = []
    yield LogRead(wanted.number, records, end_offset, size_bytes)


def _snapshot_pieces(wanted: ReadSnapshot, parts: Iterator[bytes]) -> Iterator[LogRead]:
    for part in parts:
        yield LogRead(wanted.number, [record for batch in whole_batches(part) for record in records_in(batch)], None)
    yield LogRead(wanted.number, (), wanted.snapshot.end_offset)
