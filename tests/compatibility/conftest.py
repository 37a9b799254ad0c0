"""Fixtures of the compatibility tests: Kafka's code behind a pipe, running nodes, the record of the matrix."""

import datetime
from collections.abc import Generator, Iterator

import pytest

from harness.kafka.kafka_node import KafkaNode
from harness.kafka.oracle import Oracle
from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from penstock.testing.node import NodeThread
from tests.compatibility import page
from tests.compatibility.left_clients import end_left_clients

# Must precede the first import: these modules contain the assertions of the matrix.
pytest.register_assert_rewrite("tests.compatibility.scenarios", "tests.compatibility.group_scenarios")


@pytest.fixture(autouse=True)
def _no_client_is_left() -> Iterator[None]:
    yield
    end_left_clients()


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own code."""
    with Oracle() as running:
        yield running


# Many records have old timestamps and must stay: background deletion starts long after a session is over.
KEEPING = {"log.initial.task.delay.ms": str(24 * 3_600_000)}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Apache Kafka, one node for the whole session; tests use different topic names."""
    with KafkaNode(tmp_path_factory.mktemp("kafka"), KEEPING) as node:
        yield node


@pytest.fixture(scope="session")
def kafka_client(kafka: KafkaNode) -> Iterator[RawClient]:
    """A connection to that node."""
    with kafka.connect() as client:
        yield client


GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def coordinated(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker that coordinates groups: one of ours, then Apache Kafka."""
    if request.param == "kafka":
        kafka: KafkaNode = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    node = NodeThread(GROUP_SETTINGS)
    node.start()
    yield node.bootstrap
    node.stop()


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockNode]:
    """A node for the tests of one module; it must not log malformed requests or internal errors."""
    with PenstockNode(tmp_path_factory.mktemp("penstock")) as node:
        yield node
        assert "malformed" not in node.log
        assert "mistake of ours" not in node.log


@pytest.fixture(scope="module")
def penstock_client(penstock: PenstockNode) -> Iterator[RawClient]:
    """A connection to that node."""
    with RawClient(penstock.bootstrap) as client:
        yield client


def pytest_addoption(parser: pytest.Parser) -> None:
    """Registered only if this folder or a file in it is named on the command line."""
    parser.addoption(
        "--record-compatibility",
        action="store_true",
        help="write docs/compatibility.md from what the client matrix shows in this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the recorder in the controlling process, which receives the reports of all workers."""
    if config.getoption("--record-compatibility", False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "record-compatibility")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the expensive scenarios of the matrix unless the page is being written."""
    if config.getoption("--record-compatibility", False):
        return
    seldom = [item for item in items if item.get_closest_marker("seldom")]
    if seldom:
        config.hook.pytest_deselected(items=seldom)
        items[:] = [item for item in items if not item.get_closest_marker("seldom")]


class Recorder:
    """Records the outcomes of the scenarios of the matrix."""

    def __init__(self) -> None:
        self._outcomes: list[page.Outcome] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records an outcome; a failure at the end of a scenario or in its teardown counts as failed."""
        for name, told in report.user_properties:
            if name == "compatibility" and isinstance(told, list) and report.when != "setup":
                module, version, operation, notes = told
                self._outcomes.append(page.Outcome(module, version, operation, notes, report.passed))

    def pytest_sessionfinish(self) -> None:
        """Writes the record, and the page from it."""
        record = page.remember(self._outcomes, datetime.date.today().isoformat())
        page.save(record)
        page.PAGE.write_text(page.render(record, page.table()))


_log_bytes_before = pytest.StashKey[int]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Notes the size of the broker's log, to show its output during a test that fails."""
    node = _node_of(item)
    if node is not None:
        item.stash[_log_bytes_before] = node.log.stat().st_size
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the broker's log output to the report."""
    report = yield
    node = _node_of(item)
    if node is not None and report.failed and _log_bytes_before in item.stash:
        report.sections.append((f"Apache Kafka ({node.log})", node.complaints(item.stash[_log_bytes_before])))
    return report


def _node_of(item: pytest.Item) -> KafkaNode | None:
    node = getattr(item, "funcargs", {}).get("kafka")
    return node if isinstance(node, KafkaNode) else None
