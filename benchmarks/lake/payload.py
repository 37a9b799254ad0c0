"""Records of 100 bytes that do not compress well, written by librdkafka."""

import random

import confluent_kafka

VALUE_BYTES = 100
POOL = 50_000
FLUSH_S = 600


def produce(bootstrap: str, topic: str, count: int, partitions: int) -> None:
    """Produces records with numbered keys; half of each value is random, the other half is repetitive."""
    chance = random.Random(1)
    pool = [chance.randbytes(VALUE_BYTES // 2) + b"%050d" % number for number in range(POOL)]
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(count):
        value, key = pool[number % POOL], b"%010d" % number
        while True:
            try:
                producer.produce(topic, value, key, number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 20_000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    assert left == 0, f"{left} records were not written within {FLUSH_S} s"
