"""What compatibility tests share: Kafka's code behind a pipe, and a running Apache Kafka."""

from collections.abc import Generator, Iterator

import pytest

from tests.compatibility.kafka_node import KafkaNode
from tests.compatibility.oracle import Oracle
from tests.compatibility.raw_client import RawClient


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own code."""
    with Oracle() as running:
        yield running


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Apache Kafka, one node for the whole session; tests tell their topics apart by name."""
    with KafkaNode(tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def kafka_client(kafka: KafkaNode) -> Iterator[RawClient]:
    """A connection to that node."""
    with kafka.connect() as client:
        yield client


_log_bytes_before = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Remembers where the broker's log stood, to show what it said during a test that fails."""
    node = _node_of(item)
    if node is not None:
        item.stash[_log_bytes_before] = node.log.stat().st_size
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the broker's words to the report."""
    report = yield
    node = _node_of(item)
    if node is not None and report.failed and _log_bytes_before in item.stash:
        report.sections.append((f"Apache Kafka ({node.log})", node.complaints(item.stash[_log_bytes_before])))
    return report


def _node_of(item: pytest.Item) -> KafkaNode | None:
    node = getattr(item, "funcargs", {}).get("kafka")
    return node if isinstance(node, KafkaNode) else None
