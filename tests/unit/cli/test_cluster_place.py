"""A command is about the cluster that was named; if none was, about the one of the present folder."""

import json
from pathlib import Path

import pytest

from penstock.cli.cluster_place import HOME, whereabouts
from penstock.cli.failing import Failed
from tests.unit.cli.conftest import Penstock

NOBODY = 1  # listens on this port


def a_cluster(path: Path, *ports: int) -> None:
    nodes = [{"node_id": number, "port": port, "controller_port": None} for number, port in enumerate(ports, 1)]
    path.mkdir(parents=True)
    (path / "cluster.json").write_text(json.dumps({"cluster_id": "c", "nodes": nodes}))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present one, with a cluster in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    a_cluster(HOME, 19092, 19093)
    return tmp_path


def test_the_cluster_of_the_present_folder_is_found() -> None:
    place, local = whereabouts(None)
    assert place == "127.0.0.1:19092,127.0.0.1:19093"
    assert local is not None
    assert local.path == HOME


def test_what_was_said_goes_before_what_lies_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for one cluster must not move another's replicas."""
    a_cluster(Path("other"), 29092)
    assert whereabouts("broker:9092", Path("other")) == ("broker:9092", None)
    assert whereabouts(None, Path("other"))[0] == "127.0.0.1:29092"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "staging:9092")
    assert whereabouts(None) == (None, None), "the client finds it in the variable"
    assert whereabouts(None, Path("other"))[0] == "127.0.0.1:29092"


def test_without_a_cluster_it_is_looked_for_where_every_command_looks(folder: Path) -> None:
    (HOME / "cluster.json").unlink()
    assert whereabouts(None) == (None, None)
    with pytest.raises(Failed, match="penstock cluster up --dir nowhere"):
        whereabouts(None, Path("nowhere"))


@pytest.mark.parametrize(
    "command", [("quorum",), ("reassign", "status"), ("reassign", "plan", "--drain", "1"), ("reassign", "apply")]
)
def test_commands_that_find_it_say_how_to_start_it(penstock: Penstock, command: tuple[str, ...]) -> None:
    a_cluster(Path("stopped"), NOBODY)
    Path("reassignment.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]})
    )
    done = penstock(*command, "--dir", "stopped")
    assert done.code == 1
    assert "nobody answers of the cluster in stopped: `penstock cluster up --dir stopped` starts it" in done.err
    elsewhere = penstock(*command, "--dir", "stopped", "-b", f"127.0.0.1:{NOBODY}")
    assert elsewhere.code == 1
    assert "cluster up" not in elsewhere.err, "-b goes first"
