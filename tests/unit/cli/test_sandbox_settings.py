"""The settings that `penstock sandbox up` writes for new nodes."""

from pathlib import Path

import pytest

from penstock.cli.sandbox.nodes import LocalCluster
from penstock.cli.settings.validation import validate

SAFE = {"default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


def settings_of(cluster: LocalCluster, node_id: int) -> dict[str, str]:
    text = (cluster.home(node_id) / "server.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("count", [3, 4])
def test_topics_of_three_nodes_have_three_replicas_of_which_two_must_be_in_sync(tmp_path: Path, count: int) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.grow(count, 21_000)
    cluster.grow(count + 1, 21_000)
    for node in cluster.nodes:
        settings = settings_of(cluster, node.node_id)
        assert settings.items() >= SAFE.items()
        assert validate(settings).is_usable


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_nodes_have_kafkas_defaults_also_when_others_join(tmp_path: Path, count: int) -> None:
    """The nodes of a cluster agree on the defaults, and those of the first ones are not changed."""
    cluster = LocalCluster(tmp_path)
    cluster.grow(count, 21_000)
    cluster.grow(3, 21_000)
    for node in cluster.nodes:
        settings = settings_of(cluster, node.node_id)
        assert settings.keys().isdisjoint({"default.replication.factor", "min.insync.replicas"})
        assert validate(settings).is_usable
