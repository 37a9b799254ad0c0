"""Transactions on Apache Kafka: with read_committed, our source and the connector return just the committed ones."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.answerer import Answerer
from harness.spark.topics import numbers, seen, together
from tests.spark.secured_kafka import SecuredKafka

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

PARTITIONS = 2
TIMEOUT_S = 30


class Writer:
    """A transactional producer that writes numbers."""

    def __init__(self, kafka: SecuredKafka, topic: str, name: str) -> None:
        self._topic = topic
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{name}", "linger.ms": 1}
        self._producer = confluent_kafka.Producer(settings)
        self._producer.init_transactions(TIMEOUT_S)

    def write(self, *written: int) -> None:
        """Writes one batch per partition; the records are in the log when this returns."""
        for number in written:
            self._producer.produce(self._topic, b"%d" % number, b"k", partition=number % PARTITIONS)
        assert self._producer.flush(TIMEOUT_S) == 0

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)


def create(kafka: SecuredKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)


def options_of(kafka: SecuredKafka, topic: str, level: str, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": level,
        **options,
    }


def test_aborted_and_open_transactions_are_not_seen_and_committed_ones_are(
    spark: Answerer, kafka: SecuredKafka, tmp_path: Path
) -> None:
    topic = "committed"
    create(kafka, topic)
    one, two, three = (Writer(kafka, topic, name) for name in ("one", "two", "three"))
    number = 0
    committed: list[int] = []
    for turn in range(12):
        # Two transactions interleave, the first in two writes; one of them or both are aborted.
        one.begin()
        two.begin()
        mine, theirs = range(number, number + 5), range(number + 5, number + 9)
        one.write(*mine[:3])
        two.write(*theirs)
        one.write(*mine[3:])
        if turn % 2:
            two.commit()
            one.abort()
            committed += theirs
        elif turn % 4:
            one.commit()
            two.abort()
            committed += mine
        else:
            one.abort()
            two.abort()
        number += 9
    three.begin()
    three.write(1000, 1001)
    one.begin()
    one.write(2000, 2001)
    one.commit()

    def read(form: str, level: str, **options: str) -> list[Any]:
        rows: list[Any] = spark.ask("read", format=form, options=options_of(kafka, topic, level, **options))["rows"]
        return rows

    visible = read("penstock", "read_committed")
    assert numbers(visible) == committed
    assert seen(visible) == seen(read("kafka", "read_committed"))
    # In pieces so small that a transaction begins in one fetch and ends in another, and in tasks that begin anywhere.
    tiny = {"kafka.max.partition.fetch.bytes": "150", "kafka.fetch.max.bytes": "150"}
    assert seen(read("penstock", "read_committed", **tiny)) == seen(visible)
    assert seen(read("penstock", "read_committed", maxRecordsPerPartition="3")) == seen(visible)
    everything = [*range(number), 1000, 1001, 2000, 2001]
    assert numbers(read("penstock", "read_uncommitted")) == everything
    assert seen(read("penstock", "read_uncommitted")) == seen(read("kafka", "read_uncommitted"))

    # A stream stops before the open transaction, and continues when it has ended.
    streaming = options_of(kafka, topic, "read_committed", maxOffsetsPerTrigger="30")
    first = spark.ask("run", format="penstock", options=streaming, checkpoint=str(tmp_path))["batches"]
    assert numbers(together(first)) == committed
    three.commit()
    second = spark.ask("run", format="penstock", options=streaming, checkpoint=str(tmp_path))["batches"]
    assert numbers(together(second)) == [1000, 1001, 2000, 2001]
