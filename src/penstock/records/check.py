"""Checks that a batch must pass before it is appended.

Checks of the header always run, cheapest first and the checksum last, and read none of the records. Records are opened
only if a rule requires more than the header contains. A client's record count may not exceed what the payload can hold,
so a batch of a few bytes cannot claim millions of offsets; smaller false counts pass unless the rules are FULL
(docs/running.md lists what consumers then see). The checks never change a byte of the batch. Error codes are Kafka's: a
batch whose checksum is valid but whose records do not parse is INVALID_RECORD, because sending the same bytes again, as
CORRUPT_MESSAGE suggests, cannot help.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache

from penstock.model.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidTimestamp, ProtocolError, TornBatch
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.compression import OUTPUT_PER_INPUT_BYTE_MAX, Codec, decompress
from penstock.records.glance import glance
from penstock.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_EXCLUDES_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    UNUSED_BITS,
    BatchView,
    Buffer,
    TimestampType,
)
from penstock.records.rows import INT64_END, walk

RECORD_BYTES_MIN = 7
"""The smallest record: length, attributes, two deltas, key and value lengths, header count, a byte each."""

_CODEC_MAX = max(Codec)
_ONLY_BROKERS_SET_BITS = CONTROL_BIT | DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT


class Validation(Enum):
    """How thoroughly a batch is checked (`record.validation`)."""

    HEADER = "header"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Rules:
    """Requirements of a topic for its batches."""

    validation: Validation = Validation.HEADER
    batch_bytes_max: int = DEFAULT_LIMITS.batch_bytes_max
    batch_decompressed_bytes_max: int = DEFAULT_LIMITS.batch_decompressed_bytes_max
    batch_opened_records_max: int = DEFAULT_LIMITS.batch_opened_records_max
    is_compacted: bool = False
    is_from_client: bool = True
    """False for batches of this broker's own shards, which may hold markers and start at any offset."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_ms_max: int | None = None
    """How far a timestamp may lie in the past (Kafka: message.timestamp.before.max.ms); None for any."""
    timestamp_after_ms_max: int | None = 3_600_000
    """How far a timestamp may lie in the future (Kafka: message.timestamp.after.max.ms); None for any."""

    opens_records: bool = field(init=False)
    """Whether a rule requires the records to be opened."""

    def __post_init__(self) -> None:
        opens = self.validation is Validation.FULL or self.is_compacted or self.timestamp_before_ms_max is not None
        object.__setattr__(self, "opens_records", opens)


DEFAULT_RULES = Rules()


@cache
def without_opening(rules: Rules) -> Rules:
    """The same rules for a batch whose records have already been checked."""
    return replace(rules, validation=Validation.HEADER, is_compacted=False, timestamp_before_ms_max=None)


def check_batch(buffer: Buffer, rules: Rules = DEFAULT_RULES, now_ms: int | None = None) -> BatchView:
    """Checks and returns the one batch that fills `buffer`. Without `now_ms`, timestamps are not checked."""
    batch = _check_header(buffer, rules)
    if rules.timestamp_type is TimestampType.CREATE_TIME and now_ms is not None:
        _check_timestamp(batch.max_timestamp_ms, rules, now_ms)
    if not batch.is_intact:
        raise CorruptBatch("the checksum does not fit the bytes of the batch")
    if rules.opens_records:
        try:
            _check_records(batch, rules, now_ms)
        except CorruptBatch as trouble:
            raise InvalidBatch(str(trouble)) from None
    return batch


def _check_header(buffer: Buffer, rules: Rules) -> BatchView:
    """Checks the header. A fast path accepts nearly every batch; the slow path finds the error to report."""
    size_bytes = len(buffer)
    if size_bytes >= HEADER_BYTES:
        batch = BatchView(buffer)
        if (
            batch.magic == MAGIC
            and batch.length == size_bytes - LENGTH_EXCLUDES_BYTES
            and size_bytes <= rules.batch_bytes_max
            and batch.count == batch.last_offset_delta + 1
            and batch.count > 0
            and 0 <= batch.attributes <= _CODEC_MAX  # a codec, and nothing else
            and (
                batch.count * RECORD_BYTES_MIN <= size_bytes - HEADER_BYTES
                or (batch.attributes and batch.count <= _count_max(batch, rules))
            )
            and not batch.base_offset
            and (batch.base_sequence >= 0 or batch.producer_id < 0)
        ):
            return batch
    batch = _check_frame(buffer, rules)
    _check_fields(batch, rules)
    return batch


def _check_frame(buffer: Buffer, rules: Rules) -> BatchView:
    """Checks that the buffer holds one batch of the right format and length."""
    size_bytes = len(buffer)
    if not size_bytes:
        raise InvalidBatch("no batch where exactly one is expected")
    # Older formats keep their magic at the same place but have shorter headers.
    if size_bytes > 16 and buffer[16] != MAGIC:
        raise InvalidBatch(f"magic {buffer[16]}, only {MAGIC} is accepted")
    if size_bytes < HEADER_BYTES:
        raise TornBatch(f"{size_bytes} bytes are too few for a batch header", 0)
    batch = BatchView(buffer)
    if batch.length < LENGTH_MIN:
        raise CorruptBatch(f"batch length {batch.length} is shorter than a header")
    if batch.size_bytes > rules.batch_bytes_max:
        raise BatchTooLarge(f"batch of {batch.size_bytes} bytes, at most {rules.batch_bytes_max} are allowed")
    if batch.size_bytes > size_bytes:
        raise TornBatch(f"batch of {batch.size_bytes} bytes in a field of {size_bytes}", 0)
    if batch.size_bytes < size_bytes:
        raise InvalidBatch(f"{size_bytes - batch.size_bytes} bytes after the one batch that is expected")
    return batch


def _check_fields(batch: BatchView, rules: Rules) -> None:
    """Checks that the header fields are consistent and allowed."""
    if batch.count <= 0 or batch.count != batch.last_offset_delta + 1:
        raise InvalidBatch(f"count {batch.count} does not fit last offset delta {batch.last_offset_delta}")
    # Raises when the codec is unknown.
    _ = batch.codec
    if batch.has_producer_id and batch.base_sequence < 0 and not batch.is_control:
        raise InvalidBatch(f"sequence {batch.base_sequence} with producer id {batch.producer_id}")
    if batch.is_transactional and not batch.has_producer_id:
        raise InvalidBatch("a transactional batch without a producer id")
    if rules.is_from_client and (batch.base_offset or batch.attributes & _ONLY_BROKERS_SET_BITS):
        raise _posing_as_broker(batch)
    # This broker's shards are trusted. Replicated batches, which compaction may leave sparse or empty, skip this check.
    if rules.is_from_client and batch.count > (count_max := _count_max(batch, rules)):
        raise InvalidBatch(f"count {batch.count}, but a batch of {batch.size_bytes} bytes holds at most {count_max}")


def _count_max(batch: BatchView, rules: Rules) -> int:
    """Maximum number of records in the payload, uncompressed or decompressed within the limit."""
    payload_bytes = batch.size_bytes - HEADER_BYTES
    if codec := batch.codec:
        payload_bytes = min(payload_bytes * OUTPUT_PER_INPUT_BYTE_MAX[codec], rules.batch_decompressed_bytes_max)
    return payload_bytes // RECORD_BYTES_MIN


def _posing_as_broker(batch: BatchView) -> ProtocolError:
    """The error for a header that a client may not send."""
    if batch.is_control:
        return InvalidBatch("a control batch from a client")
    if batch.has_delete_horizon:
        return InvalidBatch("a delete horizon from a client")
    if batch.base_offset:
        return InvalidBatch(f"base offset {batch.base_offset} from a client, expected 0")
    return InvalidTimestamp("LogAppendTime from a client: only the broker sets it")


def _check_timestamp(timestamp_ms: int, rules: Rules, now_ms: int) -> None:
    """Rejects a timestamp that is too old or too far ahead; a missing timestamp passes."""
    if timestamp_ms == NO_TIMESTAMP:
        return
    after_ms_max, before_ms_max = rules.timestamp_after_ms_max, rules.timestamp_before_ms_max
    if after_ms_max is not None and timestamp_ms - now_ms > after_ms_max:
        raise InvalidTimestamp(f"timestamp {timestamp_ms} lies more than {after_ms_max} ms ahead of {now_ms}")
    if before_ms_max is not None and now_ms - timestamp_ms > before_ms_max:
        raise InvalidTimestamp(f"timestamp {timestamp_ms} lies more than {before_ms_max} ms behind {now_ms}")


def _check_records(batch: BatchView, rules: Rules, now_ms: int | None) -> None:
    """Checks the records themselves; under FULL also that they agree with the header."""
    is_full = rules.validation is Validation.FULL
    if is_full and batch.attributes & UNUSED_BITS:
        raise InvalidBatch(f"attributes {batch.attributes:#06x} use bits without a meaning")
    if batch.count > rules.batch_opened_records_max:
        raise InvalidBatch(
            f"{batch.count} records in a batch where records are opened, at most {rules.batch_opened_records_max} are "
            "allowed: send smaller batches"
        )
    data = decompress(batch.codec, batch.payload, rules.batch_decompressed_bytes_max)
    if _are_ordinary(data, batch, rules, now_ms):
        return
    judges_time = rules.timestamp_type is TimestampType.CREATE_TIME and now_ms is not None
    max_timestamp_ms = NO_TIMESTAMP
    for expected_delta, (attributes, timestamp_delta_ms, offset_delta, key, _, _) in enumerate(walk(data, batch.count)):
        if key is None and rules.is_compacted and not batch.is_control:
            raise InvalidBatch("a record without a key in a compacted topic")
        timestamp_ms = batch.base_timestamp_ms + timestamp_delta_ms
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        if judges_time and now_ms is not None:
            _check_timestamp(timestamp_ms, rules, now_ms)
        if is_full:
            if offset_delta != expected_delta:
                raise InvalidBatch(f"offset delta {offset_delta}, expected {expected_delta}")
            if timestamp_ms < -INT64_END:  # readers reject it; one that is too high differs from the header's
                raise InvalidBatch(f"timestamp {timestamp_ms} has more than 64 bits")
            if attributes:
                raise InvalidBatch(f"record attributes {attributes:#04x} use bits without a meaning")
    if is_full and batch.timestamp_type is TimestampType.CREATE_TIME and max_timestamp_ms != batch.max_timestamp_ms:
        raise InvalidBatch(f"max timestamp {batch.max_timestamp_ms}, the records say {max_timestamp_ms}")


def _are_ordinary(data: bytes | bytearray, batch: BatchView, rules: Rules, now_ms: int | None) -> bool:
    """Whether `glance` shows that the records break no rule. If not, they are checked one by one to find the error."""
    seen = glance(bytes(data), batch.count)
    if seen is None or (rules.is_compacted and seen.keyless and not batch.is_control):
        return False
    earliest_ms, latest_ms = (batch.base_timestamp_ms + delta for delta in (seen.timestamp_min, seen.timestamp_max))
    if batch.timestamp_type is TimestampType.CREATE_TIME and latest_ms != batch.max_timestamp_ms:
        return False
    if earliest_ms <= NO_TIMESTAMP < latest_ms:  # the earliest is not checked, and hides the second earliest
        return False
    if rules.timestamp_type is TimestampType.CREATE_TIME and now_ms is not None:
        try:
            _check_timestamp(earliest_ms, rules, now_ms)
            _check_timestamp(latest_ms, rules, now_ms)
        except InvalidTimestamp:
            return False
    return True
