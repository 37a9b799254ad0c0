"""What topics hold: records of 100 bytes, or text that compresses as text does; written by librdkafka."""

import random
from collections.abc import Iterable, Iterator

KEY_BYTES = 10
VALUE_BYTES = 100
LINES = 4096
WORDS = 2000
WORD_BYTES = 8
FLUSH_S = 300


def plain(count: int, partitions: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Numbered records in turn to each partition."""
    for number in range(count):
        yield b"%010d" % number, (b"%010d" % number) * (VALUE_BYTES // 10), number % partitions


def lines(size_bytes: int, line_bytes: int, partitions: int) -> Iterator[tuple[bytes | None, bytes, int]]:
    """Text of so many bytes in all; the first partition gets half of it, the others share the rest."""
    chance = random.Random(1)
    words = [b"%0*d" % (WORD_BYTES, chance.randrange(10**WORD_BYTES)) for _ in range(WORDS)]
    pool = [b" ".join(chance.choices(words, k=line_bytes // WORD_BYTES + 1))[:line_bytes] for _ in range(LINES)]
    for number in range(size_bytes // line_bytes):
        yield None, pool[chance.randrange(LINES)], 0 if number % 2 else 1 + (number // 2) % (partitions - 1)


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes, int]], **settings: str | int
) -> int:
    """Writes them all; how many they were."""
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
    for key, value, partition in records:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    assert left == 0, f"{left} records were not written within {FLUSH_S} s"
    return count
