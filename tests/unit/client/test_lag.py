"""Lag in seconds is the age of the first unconsumed record: exact, also in logs with gaps."""

import asyncio
from typing import Any

import pytest

from penstock.client.admin.lag import NO_LEADER, NO_PARTITION, NO_TOPIC, Bounds, PartitionLag, bounds_now, lag, total
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import patch
from penstock.wire.api import Api
from tests.unit.client.brokers import Brokers, Fault, append, play


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


def at_once(brokers: Brokers, *partitions: TopicPartition) -> Any:
    """Returns the bounds that can be read at once, and how many seconds that took."""

    async def story(ports: ClientPorts) -> Any:
        cluster = Cluster(brokers.names, ports=ports)
        try:
            begun_s = brokers.world.loop.time()
            return await bounds_now(cluster, partitions), brokers.world.loop.time() - begun_s
        finally:
            await cluster.close()

    return play(brokers, story)


def test_a_partition_without_a_leader_keeps_nobody_waiting() -> None:
    brokers = Brokers(2)
    logs = brokers.add_topic("t", 3)
    append(logs[0], 1_000, 2_000)
    append(logs[2], 1_000)
    logs[1].leader = -1
    gone = TopicPartition("gone", 0)
    found, seconds = at_once(brokers, *(TopicPartition("t", number) for number in (0, 1, 2, 99)), gone)
    assert found == {
        ("t", 0): Bounds(0, 2),
        ("t", 1): NO_LEADER,
        ("t", 2): Bounds(0, 1),
        ("t", 99): NO_PARTITION,
        gone: NO_TOPIC,
    }
    assert seconds < 1
    assert sum(api is Api.METADATA for _, api, _ in brokers.seen) == 1


def test_a_leader_that_is_down_hides_only_its_own() -> None:
    brokers = Brokers(2)
    logs = brokers.add_topic("t", 2)
    append(logs[0], 1_000)
    brokers.names.append("nobody")
    logs[1].leader = 2
    brokers_up = brokers.main_of

    def main_of(node_id: int) -> Any:
        async def rest(_: Any) -> None:
            await asyncio.Event().wait()

        return rest if node_id == 2 else brokers_up(node_id)

    brokers.main_of = main_of  # type: ignore[method-assign]
    found, seconds = at_once(brokers, TopicPartition("t", 0), TopicPartition("t", 1))
    assert found == {("t", 0): Bounds(0, 1), ("t", 1): "broker 2, its leader, does not answer"}
    assert seconds < 5


def test_a_leader_that_moves_meanwhile_is_found() -> None:
    brokers = Brokers(2)
    brokers.add_topic("t", 2)
    brokers.fail(Api.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, Fault.CLOSE)
    found, _ = at_once(brokers, TopicPartition("t", 0), TopicPartition("t", 1))
    assert found == {("t", 0): Bounds(0, 0), ("t", 1): Bounds(0, 0)}


def test_one_refusal_is_not_held_against_others() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 2)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    brokers.fail(Api.LIST_OFFSETS, refused, refused)
    found, _ = at_once(brokers, TopicPartition("t", 0), TopicPartition("t", 1))
    assert sorted(map(str, found.values())) == [str(Bounds(0, 0)), "this login may not use the topic"]


def test_nothing_known_is_not_nothing_behind() -> None:
    beyond = PartitionLag(TopicPartition("t", 0), 9, 0, 5, None, 10_000)
    behind = PartitionLag(TopicPartition("t", 1), 3, 0, 5, 9_000, 10_000)
    assert total([]) == (None, None)
    assert total([beyond]) == (None, None)
    assert total([beyond, behind]) == (2, 1.0)
