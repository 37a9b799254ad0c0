"""What the tests on Spark share: a cluster and one session on it, one Penstock node, one Apache Kafka."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.blocking import SyncClient
from tests.compatibility import maven, spark_session
from tests.compatibility.answerer import Answerer
from tests.compatibility.penstock_node import PenstockNode
from tests.spark.secured_kafka import SecuredKafka
from tests.spark.shared_classes import java_options, with_classes
from tests.spark.standalone import StandaloneSpark
from tests.spark.topics import Topics

PROGRAM = Path(__file__).parent / "session.py"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """A Master and two Workers with a core each."""
    with StandaloneSpark(tmp_path_factory.mktemp("cluster"), java=java_options()) as started:
        yield started


@pytest.fixture(scope="session")
def spark(cluster: StandaloneSpark) -> Iterator[Answerer]:
    """A session on the cluster that answers; the commands are in `session.py`."""
    jars = sorted((maven.build(spark_session.PROJECT) / "lib").glob("*.jar"))
    started = Answerer([sys.executable, str(PROGRAM), cluster.url, *map(str, jars)], with_classes(os.environ))
    yield started
    started.close()


@pytest.fixture(scope="session")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockNode]:
    """A node for all tests; it must not have been surprised by anything."""
    with PenstockNode(tmp_path_factory.mktemp("penstock")) as node:
        yield node
        assert "mistake of ours" not in node.log


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Apache Kafka for all tests."""
    with SecuredKafka(tmp_path_factory.mktemp("kafka")) as node:
        yield node


@pytest.fixture(scope="session")
def client(penstock: PenstockNode) -> Iterator[SyncClient]:
    """A client of the Penstock node."""
    with SyncClient(penstock.bootstrap) as made:
        yield made


@pytest.fixture
def topics(penstock: PenstockNode, client: SyncClient) -> Topics:
    """Topics of one test on the Penstock node."""
    return Topics(penstock.bootstrap, client)
