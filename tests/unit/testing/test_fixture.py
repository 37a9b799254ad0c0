"""The pytest fixture in the wheel: a real node, and topics of the test's own."""

import pytest

from penstock.testing.plugin import Kafka


def test_records_come_back_in_order(kafka: Kafka) -> None:
    kafka.produce("orders", {"id": 1}, key="a")
    kafka.produce("orders", "plain text")
    first = kafka.expect("orders")
    assert (first.json(), first.key, first.offset) == ({"id": 1}, b"a", 0)
    assert kafka.expect("orders").text() == "plain text"


def test_tests_do_not_see_each_other(kafka: Kafka) -> None:
    with pytest.raises(TimeoutError, match="orders"):
        kafka.expect("orders", timeout=0.1)


def test_topics_can_be_made(kafka: Kafka) -> None:
    name = kafka.create("wide", partitions=4)
    (found,) = [topic for topic in kafka.client.topics() if topic.name == name]
    assert len(found.partitions) == 4
