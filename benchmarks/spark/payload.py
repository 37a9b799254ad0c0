"""The records of topics, written by librdkafka: records of 100 bytes, orders in JSON, compressible text."""

import math
import random
from collections.abc import Iterable, Iterator

KEY_BYTES = 10
VALUE_BYTES = 100
LINES = 4096
WORDS = 2000
WORD_BYTES = 8
FLUSH_S = 300
DAY_MS = 1_769_817_600_000
"""2026-01-31."""


Record = tuple[bytes | None, bytes, int, int]
"""Key, value, partition, and a timestamp in ms, or 0 for the current time."""


def plain(count: int, partitions: int) -> Iterator[Record]:
    """Numbered records, round-robin over partitions."""
    for number in range(count):
        yield b"%010d" % number, (b"%010d" % number) * (VALUE_BYTES // 10), number % partitions, 0


def orders(count: int, partitions: int, days: int) -> Iterator[Record]:
    """Small JSON documents, round-robin over partitions, spread over `days`, with more at noon than at midnight."""
    for number in range(count):
        value = b'{"n": %d, "amount": %d.%02d}' % (number, number % 977, number % 100)
        day = days * number / count
        stamp_ms = DAY_MS + int((day + 0.12 * math.sin(2 * math.pi * day)) * 86_400_000)
        yield b"%d" % (number % 1000), value, number % partitions, stamp_ms


def lines(size_bytes: int, line_bytes: int, partitions: int) -> Iterator[Record]:
    """Text of `size_bytes` in total; the first partition gets half of it, the others share the rest."""
    chance = random.Random(1)
    words = [b"%0*d" % (WORD_BYTES, chance.randrange(10**WORD_BYTES)) for _ in range(WORDS)]
    pool = [b" ".join(chance.choices(words, k=line_bytes // WORD_BYTES + 1))[:line_bytes] for _ in range(LINES)]
    for number in range(size_bytes // line_bytes):
        yield None, pool[chance.randrange(LINES)], 0 if number % 2 else 1 + (number // 2) % (partitions - 1), 0


def produce(bootstrap: str, topic: str, records: Iterable[Record], **settings: str | int) -> int:
    """Produces all records; returns their number."""
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    count = 0
    for key, value, partition, timestamp_ms in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    assert left == 0, f"{left} records were not written within {FLUSH_S} s"
    return count
