"""The pytest plugin. `kafka` gives a test topics of its own on a node that all tests of the process share.

    def test_orders(kafka):
        kafka.produce("orders", {"id": 1})
        run_my_service(bootstrap=kafka.bootstrap, topic=kafka.topic("orders"))
        assert kafka.expect("orders.out").json() == {"id": 1}

Names are prefixed per test, so that tests do not see each other's records; each process has its own node, so that tests
may run in parallel. Nothing but the wheel is needed.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.client.blocking import SyncClient
    from penstock.testing.node import NodeThread

NAME_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Received:
    """A record that a test was waiting for."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int

    def text(self) -> str:
        """The value as text."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """The value as JSON."""
        return json.loads(self.value or b"null")


class Kafka:
    """A test's access to the node."""

    def __init__(self, bootstrap: str, client: "SyncClient", prefix: str) -> None:
        self.bootstrap = bootstrap
        """For any Kafka client: host and port."""
        self.client = client
        """A `penstock.Client` that blocks."""
        self._prefix = prefix
        self._next: dict[str, int] = {}

    def topic(self, name: str) -> str:
        """The real name of a topic of this test; pass it to the code under test."""
        return f"{self._prefix}.{name}"

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, exist_ok: bool = False
    ) -> str:
        """Creates a topic and returns its real name. Topics are also created on first use."""
        self.client.create_topic(self.topic(name), partitions, configs=configs, exist_ok=exist_ok)
        return self.topic(name)

    def produce(self, name: str, value: Any, key: str | bytes | None = None) -> None:
        """Writes one record; a value that is neither bytes nor a string is written as JSON."""
        content = value if isinstance(value, bytes | str) else json.dumps(value)
        self.client.publish(self.topic(name), content, key)

    def expect(self, name: str, timeout: float = 5.0) -> Received:
        """The next record of a topic with one partition, in order; raises TimeoutError if none arrives."""
        topic = self.topic(name)
        deadline = time.monotonic() + timeout
        start = self._next.get(topic, 0)
        while time.monotonic() < deadline:
            if topic in {known.name for known in self.client.topics()}:
                for found in self.client.consume(topic, start=start, until_end=True):
                    self._next[topic] = found.offset + 1
                    return Received(found.key, found.value, found.partition, found.offset)
            time.sleep(0.02)
        raise TimeoutError(f"no record came to {name!r} ({topic}) within {timeout} s")


@pytest.fixture(scope="session")
def kafka_node() -> "Iterator[NodeThread]":
    """One node for all tests of this process."""
    from penstock.testing.node import NodeThread

    node = NodeThread()
    node.start()
    yield node
    node.stop()


@pytest.fixture(scope="session")
def kafka_node_client(kafka_node: "NodeThread") -> "Iterator[SyncClient]":
    """One client for all tests of this process."""
    from penstock.client.blocking import SyncClient

    with SyncClient(kafka_node.bootstrap) as client:
        yield client


@pytest.fixture
def kafka(kafka_node: "NodeThread", kafka_node_client: "SyncClient", request: pytest.FixtureRequest) -> Kafka:
    """A real node, with topics of this test's own."""
    prefix = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.nodeid.rpartition("/")[2])[-NAME_LENGTH_MAX:]
    return Kafka(kafka_node.bootstrap, kafka_node_client, prefix.strip("-"))
