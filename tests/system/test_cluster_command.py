"""`penstock cluster` and `penstock quorum`: a cluster of real processes is started, harmed, mended and stopped."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.commands import Shell
from tests.system.victim import free_port

pytestmark = pytest.mark.xdist_group("cluster")

HERE = ("--dir", "c")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """In whose directory three nodes run."""
    shell = Shell(tmp_path_factory.mktemp("cluster"))
    try:
        assert "3 nodes serve" in shell("cluster", "up", "--nodes", "3", "--port", str(free_port()), *HERE)
        yield shell
    finally:
        shell.run("cluster", "down", *HERE)


def status(shell: Shell) -> dict[int, dict[str, object]]:
    done = shell.run("cluster", "status", "-o", "json", *HERE)
    return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}


def until_health_says(shell: Shell, problem: str) -> None:
    """At first a broker merely does not answer; it is down when the controller has said so."""
    deadline = time.monotonic() + 60
    while True:
        done = shell.run("cluster", "health", *HERE)
        assert done.returncode == 1, done.stdout.decode()
        if problem in done.stdout.decode():
            return
        assert time.monotonic() < deadline, done.stdout.decode()


def test_status_has_every_address_and_one_leader(shell: Shell) -> None:
    nodes = status(shell)
    assert sorted(nodes) == [1, 2, 3]
    assert all(node["serves"] for node in nodes.values())
    assert [node["quorum"] for node in nodes.values()].count("leader") == 1
    addresses = [node[name] for node in nodes.values() for name in ("address", "controller")]
    assert len(set(addresses)) == 6
    said = json.loads(shell("quorum", "-o", "json", *HERE))
    assert {row["node"] for row in said["replicas"]} == {1, 2, 3}
    assert nodes[said["leader"]]["quorum"] == "leader"


def test_the_cluster_of_a_folder_needs_no_address(shell: Shell) -> None:
    assert shell("reassign", "status", *HERE) == "No partition moves.\n"
    said = json.loads(shell("reassign", "plan", "--to", "1,2,3", "-o", "json", *HERE))
    assert said["moves"] == []
    assert "penstock cluster up --dir nowhere" in shell.fails("reassign", "status", "--dir", "nowhere")


def test_a_killed_leader_is_replaced_and_comes_back(shell: Shell) -> None:
    before = status(shell)
    leader = next(number for number, node in before.items() if node["quorum"] == "leader")
    other = next(number for number in before if number != leader)
    at = ("-b", str(before[other]["address"]))
    shell("topic", "create", "single", "-p", "3", "-r", "1", *at)
    assert shell("cluster", "kill", str(leader), *HERE) == f"Killed node {leader}.\n"
    assert f"node {leader} does not run" in shell.fails("cluster", "kill", str(leader), *HERE)
    assert shell.run("cluster", "status", *HERE).returncode == 1
    until_health_says(shell, f"broker {leader} is down")
    refused = shell.fails("cluster", "restart", "--rolling", *HERE)
    assert "the cluster is not well, and a restart would make it worse" in refused
    assert f"is whole on broker {leader}: start that" in shell.fails("topic", "elect", "single", "--unclean", *at)
    shell("topic", "create", "made-meanwhile", "-p", "2", "-r", "2", *at)
    assert "3 nodes serve" in shell("cluster", "up", *HERE)
    assert "made-meanwhile" in shell("topic", "list", "-b", str(before[leader]["address"]))
    shell("cluster", "health", "--wait", "30", *HERE)
    shell("topic", "elect", "made-meanwhile", *at)
    assert shell("topic", "elect", "made-meanwhile", "single", *at) == "No partition needs an election.\n"
    assert shell("topic", "elect", "single", "--unclean", *at) == "No partition needs an election.\n"
    assert "All" not in shell("cluster", "up", *HERE)  # what is said while it waits is for whoever watches


def test_a_broker_joins_and_is_emptied(shell: Shell) -> None:
    assert "4 nodes serve" in shell("cluster", "up", "--nodes", "4", "--port", str(free_port()), *HERE)
    nodes = status(shell)
    assert (nodes[4]["role"], nodes[4]["quorum"], nodes[4]["controller"]) == ("broker", "observer", None)
    assert "node 9" in shell.fails("cluster", "decommission", "9", *HERE)
    assert "Node 4" in shell("cluster", "decommission", "4", *HERE)
    shell("topic", "create", "elsewhere", "-p", "9", "-r", "1", "-b", str(nodes[1]["address"]))
    (found,) = json.loads(shell("topic", "describe", "elsewhere", "-o", "json", "-b", str(nodes[1]["address"])))
    assert 4 not in {each["leader"] for each in found["partitions"]}
    assert "may have replicas again" in shell("cluster", "decommission", "4", "--undo", *HERE)


def test_a_process_that_took_the_number_of_a_node_is_not_touched(shell: Shell) -> None:
    """A number is used again after a while: the file also says when the process began."""
    home = Path(shell.directory) / "c" / "node-3"
    kept = (home / "pid").read_text()
    (home / "pid").write_text(json.dumps({"pid": os.getpid(), "began": 1}))
    assert "node 3 does not run" in shell.fails("cluster", "kill", "3", *HERE)
    (home / "pid").write_text(kept)


def test_a_directory_without_a_cluster_is_told_apart(shell: Shell) -> None:
    assert "penstock cluster up --dir nowhere" in shell.fails("cluster", "status", "--dir", "nowhere")


def test_down_stops_all_and_up_finds_everything_again(shell: Shell) -> None:
    nodes = status(shell)
    shell("topic", "create", "kept", "-b", str(nodes[1]["address"]))
    assert shell("cluster", "down", *HERE) == f"Stopped nodes {', '.join(map(str, nodes))}.\n"
    assert shell("cluster", "down", *HERE) == "No node was running.\n"
    assert f"{len(nodes)} nodes serve" in shell("cluster", "up", *HERE)
    assert "kept" in shell("topic", "list", "-b", str(status(shell)[3]["address"]))
