"""Kafka's MemoryRecords, queried through the oracle, and our description of the same batch in the same terms."""

from typing import Any

from harness.kafka.oracle import Oracle, as_json, binary, text
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.control import ControlType, EndTransactionMarker, read_control_key, read_marker
from penstock.records.header import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchView,
    TimestampType,
)
from penstock.records.rows import Record, rows
from tests.compatibility.samples import Batch

CAP_BYTES = DEFAULT_LIMITS.batch_decompressed_bytes_max
SEQUENCE_MASK = 0x7FFFFFFF

Json = dict[str, Any]


def read_batches(oracle: Oracle, data: bytes | bytearray) -> list[Json]:
    """Kafka's description of consecutive batches."""
    answer = oracle.ask("read_batches", bytes=text(data))
    assert answer["valid_bytes"] == len(data)
    found: list[Json] = answer["batches"]
    return found


def build_batch(oracle: Oracle, batch: Batch, codec: str, append_time_ms: int, settings: Json) -> bytes:
    """The batch that Kafka builds; `settings` are those of our own builder."""
    base_offset = settings.get("base_offset", 0)
    answer = oracle.ask(
        "build_batch",
        codec=codec,
        timestamp_type=settings.get("timestamp_type", TimestampType.CREATE_TIME).name,
        base_offset=base_offset,
        leader_epoch=settings.get("leader_epoch", NO_LEADER_EPOCH),
        append_time=append_time_ms,
        producer_id=settings.get("producer_id", NO_PRODUCER_ID),
        producer_epoch=settings.get("producer_epoch", NO_PRODUCER_EPOCH),
        base_sequence=settings.get("base_sequence", NO_SEQUENCE),
        is_transactional=settings.get("is_transactional", False),
        is_control=False,
        delete_horizon_ms=settings.get("delete_horizon_ms"),
        records=[as_json(record._replace(offset=base_offset + delta)) for delta, record in enumerate(batch)],
    )
    return binary(answer["bytes"])


def build_marker(
    oracle: Oracle,
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
) -> bytes:
    """The marker batch that Kafka builds."""
    answer = oracle.ask(
        "build_marker",
        type=marker.type.name,
        coordinator_epoch=marker.coordinator_epoch,
        base_offset=base_offset,
        timestamp=timestamp_ms,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return binary(answer["bytes"])


def describe(data: bytes | bytearray) -> Json:
    """Our description of a batch, in the form of `read_batches`."""
    batch = BatchView(data)
    description: Json = {
        "is_valid": batch.is_intact,
        "size_bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "leader_epoch": batch.leader_epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "codec": batch.codec.name,
        "timestamp_type": batch.timestamp_type.name,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.base_timestamp_ms if batch.has_delete_horizon else None,
        "base_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "count": batch.count,
    }
    if batch.is_intact:
        description["records"] = [_describe_record(batch, record) for record in rows(batch, CAP_BYTES)]
    return description


def _describe_record(batch: BatchView, record: Record) -> Json:
    sequence = batch.base_sequence + record.offset - batch.base_offset
    description = as_json(record, sequence=NO_SEQUENCE if batch.base_sequence < 0 else sequence & SEQUENCE_MASK)
    if batch.is_control:
        type_ = read_control_key(record.key)
        description["control_type"] = type_.name
        if type_ in (ControlType.COMMIT, ControlType.ABORT):
            description["coordinator_epoch"] = read_marker(record.key, record.value).coordinator_epoch
    return description
