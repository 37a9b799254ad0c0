"""The measured loads and their contenders.

Comparisons come in pairs. *Defaults against defaults*: Penstock acknowledges records on stable storage, Kafka records
in the page cache. *The same durability*: both from the page cache, or both from stable storage. `penstock-full` also
validates every record, as Kafka does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.side_by_side.loads import Clients, ColdReplay, Consume, Everyday, Latency, Produce, Work
from benchmarks.side_by_side.replicated import Replicated, ReplicatedPaced


class Contender(NamedTuple):
    """A broker and the settings of its topics."""

    broker: str
    settings: Mapping[str, str]
    title: str


CONTENDERS: Mapping[str, Contender] = {
    "penstock": Contender("penstock", {}, "Penstock, defaults (syncs every ack)"),
    "kafka": Contender("kafka", {}, "Kafka, defaults (page cache)"),
    "penstock-replicated": Contender("penstock", {"durability": "replicated"}, "Penstock, page cache"),
    "penstock-full": Contender(
        "penstock",
        {"durability": "replicated", "record.validation": "full"},
        "Penstock, page cache, opens every record",
    ),
    "kafka-flush": Contender("kafka", {"flush.messages": "1"}, "Kafka, syncs every ack"),
    "penstock-3": Contender("penstock-trio", {"durability": "replicated"}, "Three Penstock brokers, page cache"),
    "kafka-3": Contender("kafka-trio", {}, "Three Kafka brokers, defaults (page cache)"),
    "penstock-3-sync": Contender("penstock-trio", {}, "Three Penstock brokers, defaults (every ack is synced on all)"),
    "kafka-3-flush": Contender(
        "kafka-trio", {"flush.messages": "1"}, "Three Kafka brokers, every ack is synced on all"
    ),
    "bare": Contender("bare", {}, "bare loop"),
    "bare-sync": Contender("bare", {"sync": "1"}, "bare loop, syncs every ack"),
}

PAIRS = (
    ("Defaults against defaults", "penstock", "kafka"),
    ("Same durability: page cache", "penstock-replicated", "kafka"),
    ("Same durability, every record opened", "penstock-full", "kafka"),
    ("Same durability: stable storage", "penstock", "kafka-flush"),
    ("Three brokers, three replicas, acks=all: page cache", "penstock-3", "kafka-3"),
    ("Three brokers, three replicas, acks=all: stable storage", "penstock-3-sync", "kafka-3-flush"),
)

WRITERS = ("penstock", "kafka", "penstock-replicated", "kafka-flush", "penstock-full", "bare", "bare-sync")
READERS = ("penstock", "kafka", "bare")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the report."""

    name: str
    title: str
    work: Callable[[], Work]
    contenders: tuple[str, ...]
    is_on_all_cores: bool = False
    """Whether brokers may use all cores, those of the load included."""


TRIOS = ("penstock-3", "kafka-3", "penstock-3-sync", "kafka-3-flush")
CLIENTS = ("penstock", "kafka", "penstock-replicated", "kafka-flush")
STEADY_BYTES_S = 50e6
EVERYDAY = "1 KB of JSON, lz4, linger 5 ms"


def _everyday(rate: float) -> Clients:
    return Clients(
        "rdkafka_producer",
        producers=20,
        consumers=10,
        partitions=50,
        record_bytes=1000,
        codec="lz4",
        values="json",
        rate=rate,
        settings={"linger.ms": 5},
    )


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row("produce-1", "100-byte records in 64 KiB batches, 1 connection → 1 partition", Produce, WRITERS),
        Row(
            "produce-16",
            "100-byte records in 64 KiB batches, 16 connections → 16 partitions",
            lambda: Produce(connections=16, partitions=16),
            WRITERS,
        ),
        Row(
            "produce-cores",
            "100-byte records in 64 KiB batches, 16 connections → 16 partitions, brokers on all cores beside the load",
            lambda: Produce(connections=16, partitions=16),
            ("kafka", "penstock-replicated", "kafka-flush", "penstock"),
            is_on_all_cores=True,
        ),
        Row(
            "produce-mixed",
            "records of 50 to 150 bytes in 64 KiB batches, 1 connection → 1 partition",
            lambda: Produce(values="mixed"),
            ("kafka", "penstock-replicated", "penstock-full"),
        ),
        Row(
            "small",
            "requests of one 100-byte record, 1 connection, 16 in flight",
            lambda: Produce(in_flight=16, batch_bytes=1),
            WRITERS,
        ),
        Row(
            "small-16",
            "requests of one 100-byte record, 16 connections → 16 partitions, 16 in flight each",
            lambda: Produce(connections=16, partitions=16, in_flight=16, batch_bytes=1),
            WRITERS,
        ),
        Row("consume-1", "hot 64 KiB batches, 1 connection ← 1 partition", Consume, READERS),
        Row(
            "consume-16",
            "hot 64 KiB batches, 16 connections ← 16 partitions",
            lambda: Consume(connections=16, partitions=16),
            READERS,
        ),
        Row(
            "latency",
            "one 100-byte record per request, 16 connections, paced at half of the slower one's most",
            lambda: Latency(connections=16, partitions=16, in_flight=16, batch_bytes=1),
            ("penstock", "kafka", "penstock-replicated", "bare"),
        ),
        Row(
            "latency-synced",
            "the same, with both syncing every ack",
            lambda: Latency(connections=16, partitions=16, in_flight=16, batch_bytes=1),
            ("penstock", "kafka-flush", "bare-sync"),
        ),
        Row(
            "steady",
            "50 MB/s of 100-byte records in 64 KiB batches, 4 connections → 4 partitions",
            lambda: Latency(connections=4, partitions=4, rate=STEADY_BYTES_S / Produce().batch().value_bytes),
            ("penstock", "kafka", "penstock-replicated", "kafka-flush", "bare-sync"),
        ),
        Row(
            "cold-replay",
            "a replay from disk beside a producer of 500 requests/s (its acks: p50, p99)",
            ColdReplay,
            ("penstock", "kafka", "penstock-replicated"),
        ),
        Row(
            "java",
            "Kafka's ProducerPerformance, 100-byte records, its defaults",
            lambda: Clients("java_producer"),
            CLIENTS,
        ),
        Row(
            "librdkafka",
            "one librdkafka producer, 100-byte records, its defaults",
            lambda: Clients("rdkafka_producer"),
            CLIENTS,
        ),
        Row(
            "everyday",
            f"20 librdkafka producers and 10 consumers, 50 partitions, {EVERYDAY}, 5,000 records/s",
            lambda: _everyday(5000.0),
            CLIENTS,
        ),
        Row(
            "everyday-max",
            f"20 librdkafka producers and 10 consumers, 50 partitions, {EVERYDAY}, as many as they can",
            lambda: _everyday(0.0),
            CLIENTS,
        ),
        Row(
            "everyday-raw",
            "20 raw producers and 10 readers, 50 partitions, pre-encoded batches of 16 records, 1 KB of JSON, lz4",
            lambda: Everyday(
                connections=20, partitions=50, record_bytes=1000, batch_bytes=16 * 1024, codec="lz4", values="json"
            ),
            CLIENTS,
        ),
        Row(
            "replicated",
            "three brokers on all cores: 100-byte records in 64 KiB batches, 6 connections → 6 partitions",
            lambda: Replicated(connections=2, partitions=2),
            TRIOS,
            is_on_all_cores=True,
        ),
        Row(
            "replicated-paced",
            "three brokers: the same in batches of 16 KiB, paced at half of the slowest one's most",
            lambda: ReplicatedPaced(connections=2, partitions=2, batch_bytes=16 * 1024),
            TRIOS,
            is_on_all_cores=True,
        ),
    )
}
