"""Records as Python clients return them, converted to one form."""

from typing import Any, NamedTuple

import confluent_kafka

from penstock.records.header import NO_TIMESTAMP, TimestampType
from penstock.records.rows import Record


class Seen(NamedTuple):
    """A record as a consumer returns it."""

    record: Record
    timestamp_type: TimestampType


def seen_by_librdkafka(message: Any) -> Seen:
    """Converts a confluent-kafka message."""
    assert message.error() is None, message.error()
    kind, timestamp_ms = message.timestamp()
    if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE:
        timestamp_ms = NO_TIMESTAMP
    append_time = kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    headers = tuple(message.headers() or ())
    record = Record(message.offset(), timestamp_ms, message.key(), message.value(), headers)
    return Seen(record, TimestampType(append_time))


def seen_in_python(message: Any) -> Seen:
    """Converts an aiokafka or kafka-python message."""
    record = Record(message.offset, message.timestamp, message.key, message.value, tuple(message.headers))
    return Seen(record, TimestampType(message.timestamp_type))
