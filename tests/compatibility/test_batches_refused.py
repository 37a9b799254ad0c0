"""Batches that must not be appended: Apache Kafka and Penstock reject the same ones, for the same reason.

Where our response differs, both responses are listed. We are never more lenient than Kafka when records are opened.
"""

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.raw_client import RawClient, Refused, Topic
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec
from penstock.records.header import HEADER_BYTES, LENGTH_EXCLUDES_BYTES, TimestampType, seal

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

NOW_MS = int(time.time() * 1000)
APPEND_TIME = TimestampType.LOG_APPEND_TIME


def good(key: bytes | None = b"key", timestamp_ms: int = NOW_MS, **settings: Any) -> bytearray:
    builder = BatchBuilder(**settings)
    for _ in range(3):
        builder.append(key, b"value" * 5, (("h", b"v"),), timestamp_ms)
    return builder.build()


def put(layout: str, position: int, *values: int, is_sealed: bool = True) -> bytearray:
    """A good batch with one field overwritten."""
    batch = good()
    struct.pack_into(layout, batch, position, *values)
    if is_sealed:
        seal(batch)
    return batch


def payload(change: Callable[[bytes], bytes], codec: Codec = Codec.NONE) -> bytearray:
    """A good batch with other records, and a header that matches them."""
    batch = good(codec=codec)
    batch[HEADER_BYTES:] = change(bytes(batch[HEADER_BYTES:]))
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_EXCLUDES_BYTES)
    seal(batch)
    return batch


def zeros(records: bytes) -> bytes:
    return bytes(len(records))


def cut(records: bytes) -> bytes:
    return records[:-4]


def longer(records: bytes) -> bytes:
    return records + b"more"


def unsealed_length(length: int) -> bytearray:
    return put(">i", 8, length, is_sealed=False)


AGREED: list[tuple[str, bytearray, ErrorCode]] = [
    ("a good batch", good(), ErrorCode.NONE),
    ("a record without a key", good(key=None), ErrorCode.NONE),
    ("a wrong checksum", put(">I", 17, 1, is_sealed=False), ErrorCode.CORRUPT_MESSAGE),
    ("an old format", put(">b", 16, 1, is_sealed=False), ErrorCode.INVALID_RECORD),
    ("a negative length", unsealed_length(-1), ErrorCode.CORRUPT_MESSAGE),
    ("a count too high", put(">i", 57, 4), ErrorCode.INVALID_RECORD),
    ("a count too low", put(">i", 57, 2), ErrorCode.INVALID_RECORD),
    ("no records", put(">i", 57, 0), ErrorCode.INVALID_RECORD),
    ("fewer than no records", put(">i", 57, -1), ErrorCode.INVALID_RECORD),
    ("a last delta too high", put(">i", 23, 5), ErrorCode.INVALID_RECORD),
    ("a control batch", good(is_control=True), ErrorCode.INVALID_RECORD),
    ("a producer without a sequence", good(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("a base offset", good(base_offset=7), ErrorCode.INVALID_RECORD),
    ("a time in the future", good(timestamp_ms=NOW_MS + 4_000_000), ErrorCode.INVALID_TIMESTAMP),
    ("two batches", good() + good(), ErrorCode.INVALID_RECORD),
    ("no batch", bytearray(), ErrorCode.INVALID_RECORD),
    ("records of zeros", payload(zeros), ErrorCode.INVALID_RECORD),
    ("records cut short", payload(cut), ErrorCode.INVALID_RECORD),
    ("bytes behind the records", payload(longer), ErrorCode.INVALID_RECORD),
]

DEPARTURES: list[tuple[str, bytearray, ErrorCode, ErrorCode]] = [
    # Sending the same bytes again, as CORRUPT_MESSAGE suggests, cannot help.
    ("a format of the future", put(">b", 16, 3, is_sealed=False), ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD),
    # To Kafka, half a batch is none; to us, it is damaged.
    ("half a batch", good()[:-3], ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),
    # Kafka ignores what it then drops or overwrites.
    ("bytes behind the batch", good() + b"abc", ErrorCode.NONE, ErrorCode.INVALID_RECORD),
    ("a delete horizon", good(delete_horizon_ms=10), ErrorCode.NONE, ErrorCode.INVALID_RECORD),
    ("the time of append", good(timestamp_type=APPEND_TIME), ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP),
    ("a wrong max timestamp", put(">q", 35, NOW_MS - 1), ErrorCode.NONE, ErrorCode.INVALID_RECORD),
    ("an attribute without a meaning", put(">h", 21, 0x80), ErrorCode.NONE, ErrorCode.INVALID_RECORD),
    # Kafka has no specific error for exceptions of its decompressors.
    ("an unknown codec", put(">h", 21, 5), ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    *(
        (
            f"{codec.name.lower()}: {change.__name__}",
            payload(change, codec),
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.INVALID_RECORD,
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
        for change in (zeros, cut)
    ),
]


@pytest.fixture(scope="module")
def topic(kafka_client: RawClient) -> Topic:
    return kafka_client.create_topic("refusals")


def their_answer(client: RawClient, topic: Topic, batch: bytearray) -> ErrorCode:
    try:
        client.produce(topic, 0, batch)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def our_answer(batch: bytearray, rules: Rules) -> ErrorCode:
    try:
        check_batch(batch, rules, NOW_MS)
    except ProtocolError as refusal:
        return refusal.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("batch", "theirs", "ours"),
    [
        *(pytest.param(batch, code, code, id=story) for story, batch, code in AGREED),
        *(pytest.param(batch, theirs, ours, id=story) for story, batch, theirs, ours in DEPARTURES),
    ],
)
def test_a_batch_is_taken_or_refused(
    kafka: KafkaNode, kafka_client: RawClient, topic: Topic, batch: bytearray, theirs: ErrorCode, ours: ErrorCode
) -> None:
    assert their_answer(kafka_client, topic, batch) == theirs
    assert our_answer(batch, Rules(validation=Validation.FULL)) == ours


def test_compacted_topics_want_keys(kafka: KafkaNode, kafka_client: RawClient) -> None:
    topic = kafka_client.create_topic("refusals-compacted", settings={"cleanup.policy": "compact"})
    rules = Rules(is_compacted=True)
    for batch, code in ((good(), ErrorCode.NONE), (good(key=None), ErrorCode.INVALID_RECORD)):
        assert (their_answer(kafka_client, topic, batch), our_answer(batch, rules)) == (code, code)
