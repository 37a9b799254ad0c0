"""The metadata log: an ordinary log, `__cluster_metadata-0`, whose records are framed metadata records.

The records of a command are one batch, so a crash leaves all of them or none. Retention by age or size never applies.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.log.settings import Durability, LogSettings
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.image import Image
from penstock.metadata.names import METADATA_TOPIC
from penstock.metadata.runtime import ENCODED_AT_ONCE
from penstock.metadata.snapshot import records_of
from penstock.model.errors import CorruptBatch, ErrorCode, ProtocolError, TornBatch
from penstock.model.limits import MIB
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.records.header import BatchView, batches
from penstock.records.rows import rows
from penstock.server.loop.pieces import cut
from penstock.server.settings import CannotStart

METADATA_LOG: Final = f"{METADATA_TOPIC}-0"
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
METADATA_SETTINGS: Final = LogSettings(durability=Durability.FSYNC, retention_ms=None, retention_bytes=None)
"""Always synced, whatever durability topics may have."""

BATCH_BYTES_MAX: Final = 16 * MIB
"""Maximum size of the records of one command."""
SNAPSHOT_BATCH_RECORDS: Final = 200
"""Records that fit into one batch, however long their texts are."""
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
    """Opens the metadata log of a directory; creates it if the directory has no logs at all."""
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
    """Encodes records as one batch. Raises Unrecordable and BatchTooLarge."""
    builder = BatchBuilder(bytes_max=BATCH_BYTES_MAX)
    _add(builder, records, now_ms)
    return builder.build()


def batch_in_pieces(records: Sequence[MetadataRecord], now_ms: int) -> Generator[None, None, bytearray]:
    """Like `batch_of`, in pieces of ENCODED_AT_ONCE records."""
    builder = BatchBuilder(bytes_max=BATCH_BYTES_MAX)
    for part in cut(records, ENCODED_AT_ONCE):
        _add(builder, part, now_ms)
        yield
    return builder.build()


def _add(builder: BatchBuilder, records: Iterable[MetadataRecord], now_ms: int) -> None:
    try:
        for record in records:
            builder.append(None, encode_record(record), timestamp_ms=now_ms)
    except ValueError as error:
        raise Unrecordable(f"the change cannot be recorded: {error}") from None


def snapshot_batches(image: Image, now_ms: int) -> Iterator[bytes]:
    """Encodes an image, batch by batch."""
    records = records_of(image)
    while piece := list(islice(records, SNAPSHOT_BATCH_RECORDS)):
        yield bytes(batch_of(piece, now_ms))


def records_in(batch: BatchView) -> Iterator[MetadataRecord]:
    """Decodes a batch; a control batch of the quorum yields nothing. Raises ProtocolError if the batch is damaged."""
    if not batch.is_intact:
        raise CorruptBatch(f"the checksum of the batch at offset {batch.base_offset} does not fit")
    if not batch.is_control:
        for row in rows(batch, BATCH_BYTES_MAX):
            yield decode_record(row.value or b"")


def whole_batches(data: bytes) -> Iterator[BatchView]:
    """The whole batches of one read, which may end inside a batch other than the first."""
    try:
        yield from batches(data)
    except TornBatch as torn:
        if torn.position == 0:
            raise
