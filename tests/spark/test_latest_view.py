"""A topic as a table: the last value of each key, on Spark."""

import base64

import pytest

from harness.answerer import Answerer
from harness.spark.topics import Topics

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]


def test_the_last_value_of_each_key_without_those_that_were_taken_away(spark: Answerer, topics: Topics) -> None:
    """Two topics with the same keys: each has rows of its own."""
    names = [topics.create(partitions=3) for _ in range(2)]
    for name in names:
        for number in range(30):
            topics.client.publish(name, f"{name}:{number}", f"key-{number % 10}")
        topics.client.publish(name, None, "key-3")
    options = topics.options(",".join(names), view="latest", columns="topic,value")
    found = spark.ask("read", format="penstock", options=options)
    rows = sorted(base64.b64decode(row["value"]["bytes"]).decode() for row in found["rows"])
    assert rows == sorted(f"{name}:{number}" for name in names for number in range(20, 30) if number != 23)
