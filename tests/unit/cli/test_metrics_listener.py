"""`metrics.listener` of a file, and the ports that `penstock dev` and `penstock sandbox up` choose for metrics."""

import json
import socket
from pathlib import Path

import pytest

from penstock.cli.errors import Failed
from penstock.cli.sandbox.nodes import LocalCluster
from penstock.cli.serve import command as dev
from penstock.cli.settings.startup import plan_of
from penstock.client.bootstrap import Address


def metrics_of(text: str | None) -> Address | None:
    settings = {} if text is None else {"metrics.listener": text}
    return plan_of(settings, allows_plaintext=False).metrics


def test_unset_there_are_none() -> None:
    assert metrics_of(None) is None
    assert metrics_of(" ") is None


def test_an_address_is_read_as_it_is_written() -> None:
    assert metrics_of("127.0.0.1:9644") == ("127.0.0.1", 9644)
    assert metrics_of("[::1]:9644") == ("::1", 9644)
    assert metrics_of("localhost:0") == ("localhost", 0)


@pytest.mark.parametrize("text", ["9644", "localhost", "http://localhost:9644", "localhost:70000", ":0", "[::1:9644"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(Failed, match=r"metrics\.listener"):
        metrics_of(text)


def test_dev_takes_the_next_free_port_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = taken.getsockname()[1]
        port, note = dev._chosen(None, usual)
        assert port > usual
        assert note == f"(port {usual} is taken)"
    assert dev._chosen(17, usual) == (17, None)


def test_a_local_cluster_has_ports_of_its_own_for_metrics(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.grow(3, 21_000)
    cluster.grow(4, 21_000)
    ports = [port for node in cluster.nodes for port in (node.port, node.controller_port, node.metrics_port) if port]
    assert len(ports) == len(set(ports)) == 11
    for node in LocalCluster.open(tmp_path).nodes:
        written = (cluster.home(node.node_id) / "server.properties").read_text()
        assert f"metrics.listener=127.0.0.1:{node.metrics_port}\n" in written
        assert node.metrics == f"http://127.0.0.1:{node.metrics_port}/metrics"


def test_a_cluster_of_before_has_none(tmp_path: Path) -> None:
    nodes = [{"node_id": 1, "port": 21_000, "controller_port": 21_001}]
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster_id": "c", "nodes": nodes}))
    (node,) = LocalCluster.open(tmp_path).nodes
    assert node.metrics is None
