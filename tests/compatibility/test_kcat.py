"""kcat against a node, beyond the client matrix: metadata, and offsets by time."""

import pytest

from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.rows import kcat
from tests.compatibility.samples import NOW_MS, build

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("kcat")]


def test_metadata_shows_the_node_and_its_partitions(penstock: PenstockNode, penstock_client: RawClient) -> None:
    penstock_client.create_topic("shown", 3)
    said = kcat.run("-L", "-b", penstock.bootstrap, "-t", "shown").decode()
    assert f"broker 1 at {penstock.bootstrap} (controller)" in said
    assert 'topic "shown" with 3 partitions:' in said
    for partition in range(3):
        assert f"partition {partition}, leader 1, replicas: 1, isrs: 1" in said


def test_a_query_finds_the_first_offset_that_is_not_older(penstock: PenstockNode, penstock_client: RawClient) -> None:
    topic = penstock_client.create_topic("queried")
    penstock_client.produce(
        topic, 0, build([Record(at, NOW_MS + 10 * at, None, b"value") for at in range(5)], Codec.NONE)
    )
    for time_ms, offset in (NOW_MS + 11, 2), (NOW_MS + 20, 2), (NOW_MS + 41, -1), (-2, 0), (-1, 5):
        said = kcat.run("-Q", "-b", penstock.bootstrap, "-t", f"queried:0:{time_ms}").decode()
        assert said.strip() == f"queried [0] offset {offset}", time_ms
