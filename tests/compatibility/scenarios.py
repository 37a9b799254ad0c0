"""One scenario per operation: a raw client prepares the state, a client acts, and the raw client checks the result.

Keys and values are printable and partitions are left to the client, so that command-line tools can take part too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility import group_scenarios
from tests.compatibility.node_under_test import NodeUnderTest, eventually
from tests.compatibility.rows.row import Acks, Message, Operation, Producing, Row, TooLarge
from tests.compatibility.samples import NOW_MS
from tests.compatibility.tap import Tap

MESSAGE_BYTES_DEFAULT = 1_048_588
ACKS: Mapping[Acks, int] = {"0": 0, "1": 1, "all": -1}

BREAKS = 8
ANSWER_DELAY_S = 0.01
IN_FLIGHT_MAX = 5


Scenario = Callable[[Row, NodeUnderTest], None]


def numbered(count: int, padding_bytes: int = 0) -> list[Message]:
    """Messages whose keys give their order."""
    return [
        Message(b"key-%05d" % number, b"value-%05d-" % number + b"again-" * (padding_bytes // 6))
        for number in range(count)
    ]


def contents(messages: Sequence[Message] | Sequence[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values."""
    return [(message.key, message.value) for message in messages]


# --- topics -----------------------------------------------------------------------------------------------------------


def create_topic(row: Row, node: NodeUnderTest) -> None:
    name = node.new_name()
    row.create_topic(node.bootstrap, name, 3, {"retention.ms": "123456789", "max.message.bytes": "54321"})
    assert [part.partition_index for part in node.client.topic(name).partitions] == [0, 1, 2]
    found = node.settings(name)
    assert (found["retention.ms"], found["max.message.bytes"]) == ("123456789", "54321")


def describe_topic(row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic(5, {"retention.ms": "987654321", "cleanup.policy": "compact,delete"})
    seen = row.describe_topic(node.bootstrap, topic.name)
    assert seen.partitions == 5
    assert seen.settings["retention.ms"] == "987654321"
    assert seen.settings == {name: value or "" for name, value in node.settings(topic.name).items()}


def alter_topic(row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic(settings={"retention.ms": "111111111", "segment.bytes": "22222222"})
    before = node.settings(topic.name)
    row.alter_topic(node.bootstrap, topic.name, {"retention.ms": "333333333", "max.message.bytes": "44444"})
    wanted = before | {"retention.ms": "333333333", "max.message.bytes": "44444"}
    eventually(lambda: node.settings(topic.name) == wanted, "settings were altered")


def add_partitions(row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic(2)
    node.write(topic, [Record(0, NOW_MS, b"key", b"value")], 1)
    row.add_partitions(node.bootstrap, topic.name, 5)
    eventually(lambda: len(node.client.topic(topic.name).partitions) == 5, "the topic has five partitions")
    assert contents(node.records(topic)) == [(b"key", b"value")]


def delete_topic(row: Row, node: NodeUnderTest) -> None:
    topic, other = node.new_topic(), node.new_topic()

    def code(name: str) -> ErrorCode:
        (found,) = node.client.metadata(name).topics
        return found.error_code

    row.delete_topic(node.bootstrap, topic.name)
    eventually(lambda: code(topic.name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has gone")
    assert code(other.name) is ErrorCode.NONE


def delete_records(row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic()
    node.write(topic, [Record(number, NOW_MS, b"key", b"%d" % number) for number in range(20)], 20)
    row.delete_records(node.bootstrap, topic.name, 0, 12)
    found = node.client.fetch(topic, 0, 12)
    assert (found.log_start_offset, found.high_watermark) == (12, 20)


# --- producing --------------------------------------------------------------------------------------------------------


def produce_in_codec(codec: Codec, row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic()
    messages = numbered(200, 300)
    row.produce(node.bootstrap, topic.name, messages, Producing(codec))
    assert {batch.codec for batch in node.batches(topic)} == {codec}
    assert contents(node.records(topic)) == contents(messages)


def produce_with_acks(acks: Acks, row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic()
    messages = numbered(200)
    with Tap(node.bootstrap) as tap:
        row.produce(tap.bootstrap, topic.name, messages, Producing(acks=acks))
        # Only with acks=0 may they still be in flight.
        if acks == "0":
            node.client.wait_for_end(topic, 0, len(messages))
    assert {produced.acks for produced in tap.produced} == {ACKS[acks]}
    assert contents(node.records(topic)) == contents(messages)


def partition_by_key(row: Row, node: NodeUnderTest) -> None:
    partitions = 7
    topic = node.new_topic(partitions)
    messages = numbered(300)
    row.produce(node.bootstrap, topic.name, messages, Producing())
    keys = [message.key or b"" for message in messages]
    for partition in range(partitions):
        wanted = [key for key in keys if row.partition_of(key, partitions) == partition]
        assert [record.key for record in node.records(topic, partition)] == wanted, partition


def spread_without_keys(row: Row, node: NodeUnderTest) -> None:
    partitions = 3
    topic = node.new_topic(partitions)
    messages = [Message(None, message.value) for message in numbered(2000, 100)]
    row.produce(node.bootstrap, topic.name, messages, Producing(batch_bytes=2000))
    found = [[record.value for record in node.records(topic, partition)] for partition in range(partitions)]
    assert all(found), [len(each) for each in found]
    assert sorted(value or b"" for each in found for value in each) == [message.value for message in messages]


def at_the_limit(row: Row, node: NodeUnderTest) -> None:
    small = 20_000
    for settings, limit in ({"max.message.bytes": str(small)}, small), ({}, MESSAGE_BYTES_DEFAULT):
        topic = node.new_topic(1, settings)
        how = Producing(request_bytes_max=2 * limit, batch_bytes=2 * limit)
        fitting = Message(None, b"x" * (limit - _overhead_bytes(limit)))
        row.produce(node.bootstrap, topic.name, [fitting], how)
        assert [batch.size_bytes for batch in node.batches(topic)] == [limit]
        larger = Message(None, (fitting.value or b"") + b"x")
        with Tap(node.bootstrap) as tap:
            with pytest.raises(TooLarge):
                row.produce(tap.bootstrap, topic.name, [larger], how)
            # The node rejected the batch, not the client's own check.
            assert {produced.batch_bytes for produced in tap.produced} == {(limit + 1,)}
        assert contents(node.records(topic)) == contents([fitting])


def _overhead_bytes(batch_bytes: int) -> int:
    """The size of a batch with one record, less its value."""
    builder = BatchBuilder()
    value = b"x" * (batch_bytes - 100)
    builder.append(None, value)
    return len(builder.build()) - len(value)


def idempotent(row: Row, node: NodeUnderTest) -> None:
    """Responses are lost and requests are torn; a batch sent again must not be stored twice, nor out of order."""
    # More than requests in flight: some clients send one partition per request, and one request per partition.
    partitions = 6
    topic = node.new_topic(partitions)
    messages = numbered(3000, 60)
    with Tap(node.bootstrap, BREAKS, ANSWER_DELAY_S) as tap:
        how = Producing(idempotent=True, in_flight_max=IN_FLIGHT_MAX, batch_bytes=2048)
        row.produce(tap.bootstrap, topic.name, messages, how)
    assert (tap.answers_lost, tap.requests_torn) == (BREAKS // 2, BREAKS // 2), "too few requests to break them all"
    assert tap.requests_in_flight_max <= IN_FLIGHT_MAX
    assert tap.requests_in_flight_max > 1 if row.pipelines else tap.batches_in_flight_max == 1
    node.notes |= {"requests": tap.requests_in_flight_max, "per partition": tap.batches_in_flight_max}
    batches = [node.batches(topic, partition) for partition in range(partitions)]
    assert all(batch.has_producer_id for each in batches for batch in each)
    found = [contents(node.records(topic, partition)) for partition in range(partitions)]
    assert all(each == sorted(each, key=lambda content: content[0] or b"") for each in found)
    assert sorted(content for each in found for content in each) == contents(messages)


# --- consuming --------------------------------------------------------------------------------------------------------


def consume_from_offset(row: Row, node: NodeUnderTest) -> None:
    topic = node.new_topic(2)
    written = [Record(number, NOW_MS + number, b"key-%d" % number, b"value-%d" % number) for number in range(100)]
    node.write(topic, written, 10)
    for offset in 0, 57:
        seen = list(row.consume(node.bootstrap, topic.name, 0, offset, 40))
        assert len(seen) >= 40
        assert seen == written[offset : offset + len(seen)]


def consume_from_timestamp(row: Row, node: NodeUnderTest) -> None:
    """Time goes back once, within a batch: the first record that is not older counts, not the first later one."""
    topic = node.new_topic()
    times_ms = [NOW_MS + 1000 * second for second in (*range(50), *range(30, 70))]
    written = [
        Record(number, time_ms, b"key-%d" % number, b"value-%d" % number) for number, time_ms in enumerate(times_ms)
    ]
    node.write(topic, written, 8)
    for timestamp_ms, offset in (NOW_MS + 41_000, 41), (NOW_MS + 41_001, 42), (NOW_MS + 49_500, 70):
        seen = list(row.consume_since(node.bootstrap, topic.name, 0, timestamp_ms, 20))
        assert len(seen) >= 20
        assert seen == written[offset : offset + len(seen)]


SCENARIOS: Mapping[Operation, Scenario] = {
    Operation.CREATE_TOPIC: create_topic,
    Operation.DESCRIBE_TOPIC: describe_topic,
    Operation.ALTER_TOPIC: alter_topic,
    Operation.ADD_PARTITIONS: add_partitions,
    Operation.DELETE_TOPIC: delete_topic,
    Operation.PRODUCE_NONE: partial(produce_in_codec, Codec.NONE),
    Operation.PRODUCE_GZIP: partial(produce_in_codec, Codec.GZIP),
    Operation.PRODUCE_SNAPPY: partial(produce_in_codec, Codec.SNAPPY),
    Operation.PRODUCE_LZ4: partial(produce_in_codec, Codec.LZ4),
    Operation.PRODUCE_ZSTD: partial(produce_in_codec, Codec.ZSTD),
    Operation.ACKS_0: partial(produce_with_acks, "0"),
    Operation.ACKS_1: partial(produce_with_acks, "1"),
    Operation.ACKS_ALL: partial(produce_with_acks, "all"),
    Operation.KEYED: partition_by_key,
    Operation.ROUND_ROBIN: spread_without_keys,
    Operation.CONSUME_OFFSET: consume_from_offset,
    Operation.CONSUME_TIMESTAMP: consume_from_timestamp,
    Operation.DELETE_RECORDS: delete_records,
    Operation.AT_THE_LIMIT: at_the_limit,
    Operation.IDEMPOTENT: idempotent,
    **group_scenarios.SCENARIOS,
}
