"""A run of `./dev campaign thirty` with five nodes; and proof that its checks can fail."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from penstock.client.metadata import Partition
from tests.system.mortal_node import Broken
from tests.system.thirty import check_read, check_spread, measure

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # nodes outlive their starter by design
def test_more_nodes_than_controllers_start_serve_lose_one_and_stop(tmp_path: Path) -> None:
    run = asyncio.run(measure(tmp_path, nodes=5, records=500, idle_s=1.0))
    assert (run.nodes, run.partitions, run.records) == (5, 10, 1_000)
    assert run.led >= 1
    assert 0 < run.pss_mb < run.rss_mb


@pytest.mark.parametrize("seen", [[0, 1], [0, 1, 2, 2], [0, 1, 3]])
def test_what_is_lost_doubled_or_strange_is_noticed(seen: list[int]) -> None:
    check_read(Counter([0, 1, 2]), 3)
    with pytest.raises(Broken):
        check_read(Counter(seen), 3)


def test_a_broker_that_leads_nothing_is_noticed() -> None:
    partitions = [Partition(index, 1 + index % 2, 0, (1, 2, 3), (1, 2, 3), ()) for index in range(4)]
    with pytest.raises(Broken, match="not spread"):
        check_spread(partitions, (1, 2, 3))
    check_spread([*partitions, Partition(4, 3, 0, (3, 1, 2), (1, 2, 3), ())], (1, 2, 3))
