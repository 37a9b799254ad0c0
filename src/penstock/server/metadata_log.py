"""The metadata log: an ordinary log, `__cluster_metadata-0`, whose records are framed metadata records.

A command's records are one batch, so a crash leaves all of them or none. Nothing is ever dropped by age or size.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.log.settings import Durability, LogSettings
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.image import Image
from penstock.metadata.names import METADATA_TOPIC
from penstock.metadata.snapshot import records_of
from penstock.model.errors import CorruptBatch, ErrorCode, ProtocolError, TornBatch
from penstock.model.limits import MIB
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.header import BatchView, batches
from penstock.records.rows import rows
from penstock.server.pieces import cut
from penstock.server.settings import CannotStart

METADATA_LOG: Final = f"{METADATA_TOPIC}-0"
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_SETTINGS: Final = LogSettings(durability=Durability.FSYNC, retention_ms=None, retention_bytes=None)
"""Synced whatever topics are allowed."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""The records of one command."""
SNAPSHOT_BATCH_RECORDS: Final = 200
"""So many fit, however long their texts are."""
ENCODED_AT_ONCE: Final = 500
"""Records that are encoded without a turn for other tasks."""
READ_BYTES: Final = 4 * MIB
METADATA_RULES: Final = Rules(
    batch_bytes_max=BATCH_BYTES_MAX,
    batch_decompressed_bytes_max=BATCH_BYTES_MAX,
    is_from_client=False,
    timestamp_after_ms_max=None,
)


class Unrecordable(ProtocolError):
    """A value that no metadata record can hold, such as a text of more than 32,767 bytes."""

    code = ErrorCode.INVALID_REQUEST


async def open_metadata_log(directory: DataDirectory) -> Log:
    """The metadata log of a directory; a new one where there are no logs at all."""
    log = directory.logs.get(METADATA_LOG)
    if log is None:
        if directory.logs:
            raise CannotStart(
                f"The data directory has {len(directory.logs)} logs but no {METADATA_LOG}, which says whose they are: "
                "restore it, or point the node at an empty directory."
            )
        log = await directory.create(METADATA_TOPIC, METADATA_TOPIC_ID.hex(), 0, METADATA_SETTINGS)
    if log.offline_reason is not None:
        raise CannotStart(f"The metadata log cannot be used: {log.offline_reason}; restore it from a backup.")
    log.settings = METADATA_SETTINGS
    return log


def batch_of(records: Iterable[MetadataRecord], now_ms: int) -> bytearray:
    """Records as one batch. Unrecordable and BatchTooLarge may be raised."""
    builder = BatchBuilder(bytes_max=BATCH_BYTES_MAX)
    _add(builder, records, now_ms)
    return builder.build()


async def batch_in_pieces(records: Sequence[MetadataRecord], now_ms: int) -> bytearray:
    """The same, with turns for other tasks after every ENCODED_AT_ONCE records."""
    builder = BatchBuilder(bytes_max=BATCH_BYTES_MAX)
    for part in cut(records, ENCODED_AT_ONCE):
        _add(builder, part, now_ms)
        await asyncio.sleep(0)
    return builder.build()


def _add(builder: BatchBuilder, records: Iterable[MetadataRecord], now_ms: int) -> None:
    try:
        for record in records:
            builder.append(None, encode_record(record), timestamp_ms=now_ms)
    except ValueError as error:
        raise Unrecordable(f"the change cannot be recorded: {error}") from None


def snapshot_batches(image: Image, now_ms: int) -> Iterator[bytes]:
    """A whole cluster, batch by batch."""
    records = records_of(image)
    while piece := list(islice(records, SNAPSHOT_BATCH_RECORDS)):
        yield bytes(batch_of(piece, now_ms))


def records_in(batch: BatchView) -> Iterator[MetadataRecord]:
    """The records of a batch; those of the quorum itself are none. ProtocolError where it is not what was written."""
    if not batch.is_intact:
        raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} does not fit")
    if not batch.is_control:
        for row in rows(batch, BATCH_BYTES_MAX):
            yield decode_record(row.value or b"")


def whole_batches(data: bytes) -> Iterator[BatchView]:
    """The batches of one read, which may end inside one of them, though not the first."""
    try:
        yield from batches(data)
    except TornBatch as torn:
        if torn.position == 0:
            raise
