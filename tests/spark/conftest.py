"""Fixtures of the tests on Spark: a cluster and one session on it, one Penstock node, one Apache Kafka."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import maven
from harness.answerer import Answerer
from harness.penstock_node import PenstockNode
from harness.spark import spark_session
from harness.spark.shared_classes import java_options, with_classes
from harness.spark.spark_answerer import SparkAnswerer
from harness.spark.standalone import StandaloneSpark
from harness.spark.topics import Topics
from penstock.client.blocking import SyncClient
from tests.spark.secured_kafka import SecuredKafka

PROGRAM = Path(__file__).parent / "session.py"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """A Master and two Workers with a core each."""
    with StandaloneSpark(tmp_path_factory.mktemp("cluster"), java=java_options()) as started:
        yield started


@pytest.fixture(scope="session")
def spark(cluster: StandaloneSpark) -> Iterator[Answerer]:
    """A session on the cluster that answers commands; they are in `session.py`."""
    jars = sorted((maven.build(spark_session.PROJECT) / "lib").glob("*.jar"))
    started = SparkAnswerer([sys.executable, str(PROGRAM), cluster.url, *map(str, jars)], with_classes(os.environ))
    yield started
    started.close()


@pytest.fixture(scope="session")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockNode]:
    """A node for all tests; it must not log an internal error."""
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
