"""A rolling restart continues only while the cluster is healthy, and restarts the active controller last."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster.state import ClusterState
from penstock.cli.errors import Failed
from penstock.cli.sandbox import restart as sandbox_restart
from penstock.cli.sandbox.nodes import LocalCluster, NodePlace
from penstock.client.metadata import Partition, Topic
from penstock.model.findings import Finding, well, wrong

BEHIND = wrong("replicas", "6 partitions are behind on broker 2", "wait")
FULL = wrong("disk", "only 0.1 GB free", "make room")


class Nodes(LocalCluster):
    """Three nodes; signals and starts are only recorded."""

    def __init__(self) -> None:
        super().__init__(Path("c"))
        self.nodes = [NodePlace(number, 9090 + number, 9190 + number) for number in (1, 2, 3)]
        self.did: list[str] = []

    def signal(self, node_id: int, number: int) -> bool:
        self.did.append(f"signal {number} to {node_id}")
        return True

    def wait_for_end(self, node_id: int, limit_s: float = 0) -> bool:
        return True

    def start(self, node_id: int) -> None:
        self.did.append(f"start {node_id}")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes()
    part = Partition(0, 1, 0, (1,), (1,), ())
    state = ClusterState({}, topics=(Topic("single", b"", False, (part,)),))
    monkeypatch.setattr(LocalCluster, "open", lambda _path: nodes)
    monkeypatch.setattr(sandbox_restart, "wait_until_up", lambda *_: nodes.did.append("all serve"))
    monkeypatch.setattr(sandbox_restart, "seen", lambda _: ([1, 2, 3], 1, [1, 2, 3]))
    monkeypatch.setattr(sandbox_restart, "state_of", lambda _: state)
    monkeypatch.setattr(sandbox_restart, "PAUSE_S", 0.0)
    return nodes


@pytest.fixture
def looks(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the findings that successive health checks return; the last one repeats."""

    def show(*found: Finding) -> None:
        left: Iterator[Finding] = iter(found)
        last = found[0]

        def look(*_: Any) -> tuple[list[Finding], bool]:
            nonlocal last
            last = next(left, last)
            nodes.did.append(f"look: {'well' if last.is_well else 'wrong'}")
            return [last], True

        monkeypatch.setattr(sandbox_restart, "look", look)

    return show


def roll(*node_ids: int, timeout: float = 5.0) -> None:
    sandbox_restart.restart(list(node_ids) or None, True, Path("c"), timeout)


def test_each_waits_until_all_is_well_and_the_active_controller_comes_last(
    nodes: Nodes, looks: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    good = well("replicas", "every replica is in sync")
    looks(good, BEHIND, BEHIND, good, FULL, good)
    roll()
    assert nodes.did == [
        "look: well",
        *("signal 15 to 2", "start 2", "all serve", "look: wrong", "look: wrong", "look: well"),
        *("signal 15 to 3", "start 3", "all serve", "look: wrong"),
        *("signal 15 to 1", "start 1", "all serve", "look: well"),
    ], "a disk with little room is no reason to wait"
    said = capsys.readouterr()
    assert said.out.startswith("Restarted nodes 1, 2, 3 in ")
    assert "single: one replica only" in said.err


def test_a_cluster_that_is_not_well_is_left_alone(nodes: Nodes, looks: Callable[..., None]) -> None:
    looks(BEHIND)
    with pytest.raises(
        Failed, match=r"would make it worse: 6 partitions are behind on broker 2; `penstock cluster health"
    ):
        roll()
    assert nodes.did == ["look: wrong"]


def test_who_does_not_become_well_keeps_the_others_from_being_restarted(
    nodes: Nodes, looks: Callable[..., None]
) -> None:
    looks(well("replicas", "fine"), BEHIND)
    with pytest.raises(Failed, match=r"node 2 is back, but after 0 s 6 partitions .*; nodes 1, 3 were not restarted"):
        roll(timeout=0.05)
    assert "start 3" not in nodes.did


def test_only_those_that_were_named(nodes: Nodes, looks: Callable[..., None]) -> None:
    looks(well("replicas", "fine"))
    roll(3)
    assert [each for each in nodes.did if each.startswith("start")] == ["start 3"]
    with pytest.raises(Failed, match="there is no node 9"):
        roll(9)
