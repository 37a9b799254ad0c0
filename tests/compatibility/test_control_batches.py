"""Control batches: we read those of Apache Kafka, and its classes and aiokafka's decoder read ours."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import confluent_kafka
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from harness.kafka.kafka_node import KafkaNode
from harness.kafka.oracle import Oracle, as_json
from harness.raw_client import READ_COMMITTED, RawClient
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.control import (
    ControlType,
    EndTransactionMarker,
    marker_batch,
    read_control_key,
    read_control_type,
    read_marker,
    write_control_key,
)
from penstock.records.header import NO_SEQUENCE, batches
from penstock.records.rows import Record, rows
from penstock.wire.codec import read_from
from penstock.wire.stored.control_records import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord
from tests.compatibility.memory_records import build_marker, describe, read_batches
from tests.compatibility.samples import ANY_TIME, NOW_MS

pytestmark = pytest.mark.peers
apache_kafka = pytest.mark.xdist_group("apache-kafka")

CAP_BYTES = DEFAULT_LIMITS.batch_decompressed_bytes_max
STORED = Rules(validation=Validation.FULL, is_from_client=False)
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT

# --- transactions on Apache Kafka -------------------------------------------------------------------------------------

Transactions = Sequence[tuple[ControlType, Sequence[Record]]]
TRANSACTIONS: Transactions = [
    (COMMIT, [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS, None, b"2", (("h", None),))]),
    (ABORT, [Record(3, NOW_MS, b"b", b"3")]),
    (ABORT, [Record(5, NOW_MS, b"c", b"4"), Record(6, NOW_MS, b"c", None)]),
    (COMMIT, [Record(8, NOW_MS, b"d", b"5")]),
]
"""Offsets leave room for the marker after each transaction."""

Transact = Callable[[str, str, Transactions], None]


def transact_with_librdkafka(bootstrap: str, topic: str, transactions: Transactions) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions()
    for end, records in transactions:
        producer.begin_transaction()
        for record in records:
            producer.produce(
                topic, record.value, record.key, 0, timestamp=record.timestamp_ms, headers=list(record.headers)
            )
        producer.flush()
        if end is COMMIT:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


@pytest.fixture(params=["librdkafka", "java"])
def transact(request: pytest.FixtureRequest, oracle: Oracle) -> Transact:
    def transact_with_java(bootstrap: str, topic: str, transactions: Transactions) -> None:
        asked = [
            {"end": end.name, "records": [as_json(record, partition=0) for record in records]}
            for end, records in transactions
        ]
        settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 20}
        oracle.ask("transact", settings=settings, topic=topic, transactions=asked)

    transact_with_java.__name__ = "java"
    return transact_with_librdkafka if request.param == "librdkafka" else transact_with_java


@apache_kafka
def test_we_read_the_transactions_of_kafka(kafka: KafkaNode, kafka_client: RawClient, transact: Transact) -> None:
    topic = kafka_client.create_topic(f"transactions-{transact.__name__}", settings=ANY_TIME)
    transact(kafka.bootstrap, topic.name, TRANSACTIONS)
    (coordinator,) = kafka_client.topic("__transaction_state").partitions

    # Markers are written after the producer has its response.
    kafka_client.wait_for_end(topic, 0, TRANSACTIONS[-1][1][-1].offset + 2)

    stored = [check_batch(batch.whole, STORED) for batch in kafka_client.fetch_batches(topic, 0)]
    (producer_id,) = {batch.producer_id for batch in stored}
    assert all(batch.is_transactional for batch in stored)
    data = [record for batch in stored if not batch.is_control for record in rows(batch, CAP_BYTES)]
    assert data == [record for _, records in TRANSACTIONS for record in records]

    controls = [batch for batch in stored if batch.is_control]
    for (end, records), control in zip(TRANSACTIONS, controls, strict=True):
        assert (control.base_sequence, control.count) == (NO_SEQUENCE, 1)
        assert read_control_type(control) is end
        (record,) = rows(control, CAP_BYTES)
        assert record.offset == records[-1].offset + 1
        marker = read_marker(record.key, record.value)
        assert marker == EndTransactionMarker(end, coordinator.leader_epoch)
        # The marker that we would have written, byte for byte.
        ours = marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=control.producer_epoch,
            timestamp_ms=record.timestamp_ms,
            base_offset=record.offset,
            leader_epoch=control.leader_epoch,
        )
        assert bytes(control.whole) == bytes(ours)

    fetched = kafka_client.fetch(topic, 0, 0, READ_COMMITTED)
    aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions or ()]
    assert sorted(aborted) == [(producer_id, records[0].offset) for end, records in TRANSACTIONS if end is ABORT]


@apache_kafka
def test_we_read_the_log_of_the_quorum(kafka: KafkaNode) -> None:
    """Kafka's own control records of the other kinds are in the files of its metadata log."""
    (segment,) = kafka.data.glob("__cluster_metadata-0/*.log")
    elected = next(control_records(segment.read_bytes(), ControlType.LEADER_CHANGE))
    message, _ = read_from(LeaderChangeMessage, 0, elected.value or b"")
    assert message.leader_id == int(kafka.properties["node.id"])
    assert [voter.voter_id for voter in message.voters] == [message.leader_id]

    bootstrap = (kafka.data / "bootstrap.checkpoint").read_bytes()
    (header,) = control_records(bootstrap, ControlType.SNAPSHOT_HEADER)
    (footer,) = control_records(bootstrap, ControlType.SNAPSHOT_FOOTER)
    assert read_from(SnapshotHeaderRecord, 0, header.value or b"")[0].version == 0
    assert read_from(SnapshotFooterRecord, 0, footer.value or b"")[0].version == 0


def control_records(log: bytes, type_: ControlType) -> Iterator[Record]:
    for batch in batches(log):
        assert batch.is_intact
        if batch.is_control:
            yield from (record for record in rows(batch, CAP_BYTES) if read_control_key(record.key) is type_)


# --- our markers ------------------------------------------------------------------------------------------------------

Ending = tuple[EndTransactionMarker, dict[str, int]]
"""A marker and its position."""


def endings() -> Iterator[Ending]:
    draw = random.Random("endings of transactions")
    bits = {"producer_id": 63, "producer_epoch": 15, "timestamp_ms": 62, "base_offset": 63, "leader_epoch": 31}
    yield EndTransactionMarker(ABORT, 0), dict.fromkeys(bits, 0)
    yield EndTransactionMarker(COMMIT, 2**31 - 1), {name: 2**width - 1 for name, width in bits.items()}
    for _ in range(200):
        marker = EndTransactionMarker(draw.choice((COMMIT, ABORT)), draw.randrange(2**31))
        yield marker, {name: draw.randrange(2**width) for name, width in bits.items()}


def test_java_reads_and_writes_the_same_markers(oracle: Oracle) -> None:
    for marker, place in endings():
        ours = marker_batch(marker, **place)
        (batch,) = read_batches(oracle, ours)
        assert batch == describe(ours)
        assert batch["is_control"]
        (record,) = batch["records"]
        assert (record["control_type"], record["coordinator_epoch"]) == (marker.type.name, marker.coordinator_epoch)
        assert build_marker(oracle, marker, **place) == ours


def test_aiokafka_reads_our_markers() -> None:
    expected = {COMMIT: COMMIT_MARKER, ABORT: ABORT_MARKER}
    for marker, place in endings():
        theirs: Any = MemoryRecords(bytes(marker_batch(marker, **place))).next_batch()
        assert theirs.validate_crc()
        assert theirs.is_control_batch
        assert theirs.is_transactional
        assert (theirs.producer_id, theirs.base_offset) == (place["producer_id"], place["base_offset"])
        (record,) = theirs
        assert ControlRecord.parse(record.key) == expected[marker.type]


@pytest.mark.parametrize("type_", [type_ for type_ in ControlType if type_ not in (COMMIT, ABORT)])
def test_java_knows_the_same_control_types(oracle: Oracle, type_: ControlType) -> None:
    builder = BatchBuilder(is_control=True)
    builder.append(write_control_key(type_), b"", timestamp_ms=NOW_MS)
    batch = builder.build()
    assert read_batches(oracle, batch) == [describe(batch)]
