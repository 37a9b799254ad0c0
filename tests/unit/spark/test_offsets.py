"""Offsets are written to checkpoints in the Kafka connector's format, and read from its checkpoints."""

import json

import pytest

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import JsonError, from_stored, read_numbers, read_partitions, shown, to_stored

OFFSETS = {
    TopicPartition("orders", 10): 3,
    TopicPartition("orders", 2): 15,
    TopicPartition("a.topic", 0): 0,
}


def test_offsets_are_written_in_order_and_read_back() -> None:
    stored = to_stored(OFFSETS)
    assert json.dumps(stored) == '{"a.topic": {"0": 0}, "orders": {"2": 15, "10": 3}}'
    assert from_stored(json.loads(json.dumps(stored))) == OFFSETS


def test_equal_offsets_are_equal_as_text_whatever_order_they_came_in() -> None:
    turned = dict(reversed(list(OFFSETS.items())))
    assert json.dumps(to_stored(turned)) == json.dumps(to_stored(OFFSETS))


def test_a_checkpoint_of_the_connector_is_read() -> None:
    assert from_stored(json.loads('{"orders":{"1":7,"0":9223372036854775807}}')) == {
        TopicPartition("orders", 0): 2**63 - 1,
        TopicPartition("orders", 1): 7,
    }


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"orders": 3}', '{"orders": {"x": 3}}', '{"orders": {"0": "3"}}', '{"o": {"0": true}}']
)
def test_what_holds_no_numbers_is_told_how_it_should_look(text: str) -> None:
    with pytest.raises(JsonError, match=r'expected something like \{"orders": \{"0": 23}}, not'):
        read_numbers(text, '{"orders": {"0": 23}}')


def test_partitions_are_read_in_order_and_once() -> None:
    assert read_partitions('{"b": [3, 1, 3], "a": [0]}') == [("a", 0), ("b", 1), ("b", 3)]
    for text in ('{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}', "a"):
        with pytest.raises(JsonError, match="expected something like"):
            read_partitions(text)


def test_a_reader_is_not_shown_a_thousand_partitions() -> None:
    assert shown([TopicPartition("t", number) for number in range(1000)], most=2) == "t[0], t[1] and 998 more"
