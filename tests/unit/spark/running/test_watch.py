"""The watch reports end offsets, and a broker that does not answer within its limit, whatever the broker does."""

import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.spark.offsets import Stored
from penstock.spark.project.connecting import connect
from penstock.spark.project.plan import ClusterPlan
from penstock.spark.running.runner import ANSWER_MS
from penstock.spark.running.watch import Watch
from penstock.testing.node import NodeThread
from penstock.testing.plugin import Kafka

PATIENCE_S = 120.0


class Reports:
    """What a watch has reported. `news` is set by each report."""

    def __init__(self) -> None:
        self.latest: dict[str, Stored] = {}
        self.missed: dict[str, tuple[str, bool]] = {}
        self._news = threading.Condition()

    def told(self, topic: str, latest: Stored) -> None:
        with self._news:
            self.latest[topic] = latest
            self.missed.pop(topic, None)
            self._news.notify_all()

    def miss(self, topic: str, reason: str, is_broker_away: bool) -> None:
        with self._news:
            self.missed[topic] = reason, is_broker_away
            self._news.notify_all()

    def wait_for_all_missed(self, topics: set[str]) -> float:
        began_s = time.monotonic()
        with self._news:
            assert self._news.wait_for(lambda: self.missed.keys() >= topics, PATIENCE_S)
        return time.monotonic() - began_s

    def wait_for_all_told(self, topics: set[str]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.latest.keys() >= topics, PATIENCE_S)


def watch(bootstrap: str, reports: Reports, *topics: str) -> Watch:
    cluster = ClusterPlan(bootstrap, {})
    return Watch(lambda: connect(cluster, timeout_ms=ANSWER_MS), topics, reports.told, reports.miss)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing, as a suspended broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_end_offsets_and_topics_that_are_not_there(kafka: Kafka) -> None:
    orders = kafka.create("orders", 2)
    kafka.client.publish(orders, b"x", partition=1)
    reports = Reports()
    watched = watch(kafka.bootstrap, reports, "missing", orders)
    reports.wait_for_all_told({orders})
    watched.close()
    assert reports.latest[orders] == {orders: {"0": 0, "1": 1}}
    assert reports.missed["missing"][1] is False, "a broker has answered"


def test_a_broker_that_is_gone_is_missed_for_every_topic() -> None:
    node = NodeThread()
    node.start()
    try:
        with connect(ClusterPlan(node.bootstrap, {})) as client:
            for name in ("one", "two", "three"):
                client.create_topic(name)
        reports = Reports()
        watched = watch(node.bootstrap, reports, "one", "two", "three")
        reports.wait_for_all_told({"one", "two", "three"})
    finally:
        node.stop()
    reports.wait_for_all_missed({"one", "two", "three"})
    watched.close()
    assert all(is_away for _, is_away in reports.missed.values())
    assert node.bootstrap in reports.missed["one"][0]


def test_a_broker_that_says_nothing_is_missed_though_its_connection_stands(silent: str) -> None:
    """A client alone would wait for half a minute."""
    reports = Reports()
    watched = watch(silent, reports, "orders")
    taken_s = reports.wait_for_all_missed({"orders"})
    watched.close()
    reason, is_away = reports.missed["orders"]
    assert is_away
    assert re.search(r"no (broker answered|answer) within", reason)
    assert taken_s < 25
