"""Lag in seconds is the age of the first record that was not consumed: exact, also where logs have holes."""

import asyncio
from typing import Any

import pytest

from penstock.client.cluster import Cluster
from penstock.client.lag import PartitionLag, lag, total
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.records.builder import BatchBuilder
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import patch
from tests.unit.client.brokers import Brokers, PartitionLog, play


def append(log: PartitionLog, *timestamps: int) -> None:
    builder = BatchBuilder()
    for each in timestamps:
        builder.append(None, b"x", (), each)
    log.append(bytes(builder.build()))


def asked(brokers: Brokers, committed: dict[int, int]) -> dict[int, PartitionLag]:
    async def story(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports)
        try:
            await asyncio.sleep(5)
            return await lag(cluster, {TopicPartition("t", number): offset for number, offset in committed.items()})
        finally:
            await cluster.close()

    return {each.partition.partition: each for each in play(brokers, story)}


def test_the_first_record_that_was_not_consumed_tells() -> None:
    brokers = Brokers(2)
    logs = brokers.add_topic("t", 5)
    for log in logs:
        append(log, 1_000, 2_000, 3_000)
        append(log, 4_000)
    found = asked(brokers, {0: 0, 1: 2, 2: 4, 3: 3})
    assert {number: (each.records, each.oldest_ms) for number, each in found.items()} == {
        0: (4, 1_000),
        1: (2, 3_000),
        2: (0, None),
        3: (1, 4_000),
    }
    assert found[2].seconds == 0.0
    for number in (0, 1, 3):
        each = found[number]
        assert each.oldest_ms is not None
        assert each.seconds == (each.now_ms - each.oldest_ms) / 1000
    assert total(list(found.values())) == (7, found[0].seconds)


def test_compaction_retention_and_markers() -> None:
    brokers = Brokers()
    compacted, expired, marked, beyond = brokers.add_topic("t", 4)
    append(compacted, 1_000)
    append(compacted, 2_000)
    append(compacted, 3_000)
    del compacted.batches[1]
    append(expired, 1_000)
    append(expired, 2_000)
    expired.start = 1
    append(marked, 1_000)
    end = EndTransactionMarker(ControlType.COMMIT, 0)
    marker = bytearray(marker_batch(end, producer_id=5, producer_epoch=0, timestamp_ms=2_000))
    patch(marker, marked.end, 0)
    marked.batches.append(bytes(marker))
    marked.end += 1
    append(beyond, 1_000)
    found = asked(brokers, {0: 1, 1: 0, 2: 1, 3: 9})
    assert (found[0].records, found[0].oldest_ms) == (2, 3_000), "the next that is left"
    assert (found[1].records, found[1].oldest_ms, found[1].expired) == (1, 2_000, 1)
    assert found[1].note == "1 deleted before they were read"
    assert (found[2].records, found[2].seconds) == (1, 0.0)
    assert found[2].note == "nothing but transaction markers is left"
    assert (found[3].records, found[3].seconds) == (0, 0.0)
    assert "beyond the end" in str(found[3].note)


@pytest.mark.parametrize(("oldest_ms", "seconds"), [(None, 0.0), (-1, None), (9_000, 1.0), (11_000, 0.0)])
def test_ages(oldest_ms: int | None, seconds: float | None) -> None:
    assert PartitionLag(TopicPartition("t", 0), 3, 0, 5, oldest_ms, 10_000).seconds == seconds
