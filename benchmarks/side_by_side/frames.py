"""Requests and responses as bytes that are encoded once and patched afterwards, so that a load costs next to nothing.

Requests use the newest versions that both brokers serve, which name topics by id: so every field that is patched or
checked is at a fixed position. The positions are found by encoding, never counted by hand.
"""

import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.wire.headers import request_frame, response_frame
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

CLIENT_ID = "load"
PRODUCE_VERSION = 13
FETCH_VERSION = 18
TIMEOUT_MS = 30_000
CORRELATION_POSITION = 8
ANSWER_CORRELATION_POSITION = 4
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
TIMESTAMP_MS = int(time.time() * 1000)
"""Timestamp of all records; retention would delete records with an old one."""
_MARK = 0x1122334455667788
_SMALL_MARK = 0x55667788
_ACKS_ALL = -1


class Batch(NamedTuple):
    """A record batch, with its counts of records and bytes."""

    data: bytes
    records: int
    value_bytes: int
    """The bytes of all values."""


def make_batch(values: Sequence[bytes], codec: Codec = Codec.NONE) -> Batch:
    """Builds one batch of these values, without keys."""
    builder = BatchBuilder(codec=codec)
    for value in values:
        builder.append(None, value, timestamp_ms=TIMESTAMP_MS)
    return Batch(bytes(builder.build()), len(values), sum(map(len, values)))


def fill_batch(values: Sequence[bytes], batch_bytes: int, codec: Codec = Codec.NONE) -> Batch:
    """Fills a batch with repeated values up to a size before compression; it has at least one record."""
    builder = BatchBuilder(codec=codec, bytes_max=batch_bytes)
    total = 0
    while builder.has_room_for(None, values[builder.count % len(values)]) and builder.count < 1_000_000:
        value = values[builder.count % len(values)]
        builder.append(None, value, timestamp_ms=TIMESTAMP_MS)
        total += len(value)
    return Batch(bytes(builder.build()), builder.count, total)


# --- Produce ----------------------------------------------------------------------------------------------------------


def produce_request(topic_id: bytes, partition: int, batch: bytes) -> bytearray:
    """A complete request with correlation id 0."""
    part = PartitionProduceData(index=partition, records=batch)
    topics = [TopicProduceData(topic_id=topic_id, partition_data=[part])]
    request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return request_frame(request, PRODUCE_VERSION, 0, CLIENT_ID)


def produce_answer(topic_id: bytes, partition: int = 0, base_offset: int = 0, error: int = 0) -> bytearray:
    """A complete response, successful by default, as the bare limit sends it."""
    code = ErrorCode(error)
    part = PartitionProduceResponse(index=partition, error_code=code, base_offset=base_offset, log_start_offset=0)
    topics = [TopicProduceResponse(topic_id=topic_id, partition_responses=[part])]
    return response_frame(ProduceResponse(responses=topics), PRODUCE_VERSION, 0)


PRODUCE_ANSWER_ERROR_POSITION = produce_answer(bytes(16), base_offset=_MARK).index(INT64.pack(_MARK)) - INT16.size
PRODUCE_ANSWER_OFFSET_POSITION = PRODUCE_ANSWER_ERROR_POSITION + INT16.size
PRODUCE_PARTITION_POSITION = produce_request(bytes(16), _SMALL_MARK, b"").index(INT32.pack(_SMALL_MARK))


# --- Fetch ------------------------------------------------------------------------------------------------------------


def fetch_request(topic_id: bytes, offsets: Sequence[tuple[int, int]], bytes_max: int, wait_ms: int = 500) -> bytearray:
    """A complete request for partitions and offsets, without a fetch session; correlation id 0."""
    parts = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        for partition, offset in offsets
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic_id=topic_id, partitions=parts)],
    )
    return request_frame(request, FETCH_VERSION, 0, CLIENT_ID)


FETCH_OFFSET_POSITION = fetch_request(bytes(16), [(0, _MARK)], 1).index(INT64.pack(_MARK))
"""Position of the first partition's fetch offset."""
FETCH_PARTITION_POSITION = fetch_request(bytes(16), [(_SMALL_MARK, 0)], 1).index(INT32.pack(_SMALL_MARK))


def fetch_answer_around(topic_id: bytes, partition: int, record_bytes: int, end_offset: int) -> tuple[bytes, bytes]:
    """The bytes before and after the records in a response that carries `record_bytes` of them."""
    mark = b"\xab" * record_bytes
    part = PartitionData(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        high_watermark=end_offset,
        last_stable_offset=end_offset,
        log_start_offset=0,
        aborted_transactions=None,
        records=mark,
    )
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=[part])]
    whole = response_frame(FetchResponse(throttle_time_ms=0, responses=topics), FETCH_VERSION, 0)
    begin = whole.index(mark) if record_bytes else len(whole)
    return bytes(whole[:begin]), bytes(whole[begin + record_bytes :])
