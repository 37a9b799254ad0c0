"""Data batches and Kafka's MemoryRecords: both read the same from the same bytes, and build the same bytes."""

from typing import Any

import pytest

from harness.kafka.oracle import Oracle
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec
from penstock.records.header import NO_SEQUENCE, NO_TIMESTAMP, TimestampType, stamp_log_append_time
from penstock.records.rows import rows
from tests.compatibility.memory_records import CAP_BYTES, build_batch, describe, read_batches
from tests.compatibility.samples import NOW_MS, SCENES, Batch

pytestmark = pytest.mark.peers

APPEND_TIME_MS = NOW_MS + 1
STORED = Rules(validation=Validation.FULL, is_from_client=False)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "placed": {"base_offset": 2**40, "leader_epoch": 77},
    "idempotent": {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": 2**31 - 3},
    "transactional": {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True},
    "delete horizon": {"delete_horizon_ms": NOW_MS + 86_400_000},
    "append time": {"timestamp_type": TimestampType.LOG_APPEND_TIME},
}

all_codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
all_settings = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def build_ours(batch: Batch, codec: Codec, settings: dict[str, Any]) -> bytearray:
    builder = BatchBuilder(codec=codec, **settings)
    for record in batch:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    built = builder.build()
    if "timestamp_type" in settings:
        stamp_log_append_time(built, APPEND_TIME_MS)
    return built


@all_codecs
@all_settings
def test_java_reads_what_we_built(oracle: Oracle, codec: Codec, settings: dict[str, Any]) -> None:
    ours = [build_ours(batch, codec, settings) for scene in SCENES.values() for batch in scene]
    assert read_batches(oracle, b"".join(ours)) == [describe(batch) for batch in ours]


@all_codecs
@all_settings
def test_we_read_what_java_built(oracle: Oracle, codec: Codec, settings: dict[str, Any]) -> None:
    base_offset = settings.get("base_offset", 0)
    for name, scene in SCENES.items():
        for batch in scene:
            if any(record.timestamp_ms < NO_TIMESTAMP for record in batch):
                continue  # its builder rejects these
            built = build_batch(oracle, batch, codec.name, APPEND_TIME_MS, settings)
            if codec is Codec.NONE:
                assert built == build_ours(batch, codec, settings), name
            is_stamped = "timestamp_type" in settings
            assert list(rows(check_batch(built, STORED), CAP_BYTES)) == [
                record._replace(
                    offset=base_offset + delta, timestamp_ms=APPEND_TIME_MS if is_stamped else record.timestamp_ms
                )
                for delta, record in enumerate(batch)
            ], name


def test_java_and_we_see_the_same_damage(oracle: Oracle) -> None:
    """Flips every bit of a batch, except in length and magic, without which there is no batch."""
    whole = build_ours(SCENES["headers"][0][:3], Codec.NONE, {})
    places = [position for position in range(len(whole)) if position not in (8, 9, 10, 11, 16)]
    for position in places:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        (theirs,), ours = read_batches(oracle, damaged), describe(damaged)
        if ours["base_sequence"] < NO_SEQUENCE:
            ours["last_sequence"] = theirs["last_sequence"]  # an invalid sequence has no last one
        assert theirs == ours, position
        assert theirs["is_valid"] == (position < 16)
