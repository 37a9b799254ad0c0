"""kcat against a node, beyond what the client matrix asks of it: metadata, and offsets by time."""

from collections.abc import Iterator

import pytest

from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.penstock_node import PenstockNode
from tests.compatibility.raw_client import RawClient
from tests.compatibility.rows import kcat
from tests.compatibility.samples import NOW_MS, build

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("kcat")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockNode]:
    with PenstockNode(tmp_path_factory.mktemp("node")) as started:
        yield started


def test_metadata_shows_the_node_and_its_partitions(node: PenstockNode) -> None:
    with RawClient(node.bootstrap) as client:
        client.create_topic("shown", 3)
    said = kcat.run("-L", "-b", node.bootstrap, "-t", "shown").decode()
    assert f"broker 1 at {node.bootstrap} (controller)" in said
    assert 'topic "shown" with 3 partitions:' in said
    for partition in range(3):
        assert f"partition {partition}, leader 1, replicas: 1, isrs: 1" in said


def test_a_query_finds_the_first_offset_that_is_not_older(node: PenstockNode) -> None:
    with RawClient(node.bootstrap) as client:
        topic = client.create_topic("queried")
        client.produce(topic, 0, build([Record(at, NOW_MS + 10 * at, None, b"value") for at in range(5)], Codec.NONE))
    for time_ms, offset in (NOW_MS + 11, 2), (NOW_MS + 20, 2), (NOW_MS + 41, -1), (-2, 0), (-1, 5):
        said = kcat.run("-Q", "-b", node.bootstrap, "-t", f"queried:0:{time_ms}").decode()
        assert said.strip() == f"queried [0] offset {offset}", time_ms
