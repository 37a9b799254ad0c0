"""`penstock sandbox` and `penstock quorum`: a cluster of real processes is started, damaged, repaired and stopped."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from tests.system.commands import Shell

pytestmark = pytest.mark.xdist_group("cluster")

HERE = ("--dir", "c")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in whose directory three nodes run."""
    shell = Shell(tmp_path_factory.mktemp("cluster"))
    try:
        assert "3 nodes serve" in shell("sandbox", "up", "--nodes", "3", "--port", str(free_port()), *HERE)
        yield shell
    finally:
        shell.run("sandbox", "down", *HERE)


def status(shell: Shell) -> dict[int, dict[str, object]]:
    done = shell.run("sandbox", "status", "-o", "json", *HERE)
    return {node["node"]: node for node in json.loads(done.stdout)["nodes"]}


def until_health_says(shell: Shell, problem: str) -> None:
    """Waits for a health finding: a broker first merely does not respond, and is down once the controller fenced it."""
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
    said = json.loads(shell("quorum", "status", "-o", "json", *HERE))
    assert {row["node"] for row in said["replicas"]} == {1, 2, 3}
    assert nodes[said["leader"]]["quorum"] == "leader"


def test_the_cluster_of_a_folder_needs_no_address(shell: Shell) -> None:
    assert shell("reassign", "status", *HERE) == "No partition moves.\n"
    said = json.loads(shell("reassign", "plan", "--to", "1,2,3", "-o", "json", *HERE))
    assert said["moves"] == []
    assert "penstock sandbox up --dir nowhere" in shell.fails("reassign", "status", "--dir", "nowhere")


def test_a_killed_leader_is_replaced_and_comes_back(shell: Shell) -> None:
    before = status(shell)
    leader = next(number for number, node in before.items() if node["quorum"] == "leader")
    other = next(number for number in before if number != leader)
    at = ("-b", str(before[other]["address"]))
    shell("topic", "create", "single", "-p", "3", "-r", "1", *at)
    assert shell("sandbox", "kill", str(leader), *HERE) == f"Killed node {leader}.\n"
    assert f"node {leader} does not run" in shell.fails("sandbox", "kill", str(leader), *HERE)
    assert shell.run("sandbox", "status", *HERE).returncode == 1
    until_health_says(shell, f"broker {leader} is down")
    refused = shell.fails("sandbox", "restart", "--rolling", *HERE)
    assert "the cluster is not well, and a restart would make it worse" in refused
    assert f"is whole on broker {leader}: start that" in shell.fails("topic", "elect", "single", "--unclean", *at)
    shell("topic", "create", "made-meanwhile", "-p", "2", "-r", "2", *at)
    assert "3 nodes serve" in shell("sandbox", "up", *HERE)
    assert "made-meanwhile" in shell("topic", "list", "-b", str(before[leader]["address"]))
    shell("cluster", "health", "--wait", "30", *HERE)
    shell("topic", "elect", "made-meanwhile", *at)
    assert shell("topic", "elect", "made-meanwhile", "single", *at) == "No partition needs an election.\n"
    assert shell("topic", "elect", "single", "--unclean", *at) == "No partition needs an election.\n"
    assert "All" not in shell("sandbox", "up", *HERE)  # progress messages are for terminals only


def test_a_broker_joins_and_is_emptied(shell: Shell) -> None:
    assert "4 nodes serve" in shell("sandbox", "up", "--nodes", "4", "--port", str(free_port()), *HERE)
    nodes = status(shell)
    assert (nodes[4]["role"], nodes[4]["quorum"], nodes[4]["controller"]) == ("broker", "observer", None)
    assert "no broker 9" in shell.fails("cluster", "decommission", "9", *HERE)
    assert "Broker 4 has no replicas" in shell("cluster", "decommission", "4", *HERE)
    shell("topic", "create", "elsewhere", "-p", "9", "-r", "1", "-b", str(nodes[1]["address"]))
    (found,) = json.loads(shell("topic", "describe", "elsewhere", "-o", "json", "-b", str(nodes[1]["address"])))
    assert 4 not in {each["leader"] for each in found["partitions"]}
    assert "may have replicas again" in shell("cluster", "decommission", "4", "--undo", *HERE)


def test_every_command_finds_the_cluster_in_its_directory(shell: Shell) -> None:
    """The same endpoint file as `penstock dev` writes: no address is given here."""
    inside = Shell(shell.directory / "c")
    info = json.loads(inside("cluster", "info", "-o", "json"))
    assert info["bootstrap"] == ",".join(str(each["address"]) for each in status(shell).values())
    inside("topic", "create", "found", "-p", "1")
    inside("produce", "found", "-q", given=b"x\n")
    assert inside("consume", "found", "-e") == "x\n"
    assert "may have replicas again" in inside("cluster", "decommission", "1", "--undo")
    assert inside("topic", "delete", "found") == "found deleted.\n"


def test_a_controller_leaves_the_quorum_and_comes_back(shell: Shell) -> None:
    nodes = status(shell)
    follower = next(number for number in (1, 2, 3) if nodes[number]["quorum"] != "leader")
    assert "controller 9 is no voter; the voters are 1, 2, 3" in shell.fails("quorum", "remove", "9", *HERE)
    assert shell("quorum", "remove", str(follower), *HERE) == (
        f"Controller {follower} is no voter any more; 2 are left.\n"
    )
    said = json.loads(shell("quorum", "status", "-o", "json", *HERE))
    rows = {row["node"]: row["status"] for row in said["replicas"]}
    assert rows[follower] == "observer"
    assert len(said["replicas"]) == len(nodes), "no row for what is left of the voter"
    address = str(nodes[follower]["controller"])
    assert "does not follow the quorum" in shell.fails("quorum", "add", "9", "--controller", address, *HERE)
    assert shell.run("quorum", "add", "9", "--controller", "nonsense:x", *HERE).returncode == 2
    assert shell("quorum", "add", str(follower), "--controller", address, *HERE) == (
        f"Controller {follower} is a voter now.\n"
    )
    assert "is a voter already" in shell.fails("quorum", "add", str(follower), "--controller", address, *HERE)
    assert [each["quorum"] for each in status(shell).values()].count("observer") == len(nodes) - 3


def test_moves_are_ended(shell: Shell) -> None:
    """A slow copy is under way when it is ended: the partition keeps the replicas that it had."""
    shell("topic", "create", "slow", "-p", "1", "-r", "1", "-b", str(status(shell)[1]["address"]))
    value = b"x" * 1000 + b"\n"
    shell("produce", "slow", "-q", "-b", str(status(shell)[1]["address"]), given=value * 3000)
    inside = Shell(shell.directory / "c")
    before = json.loads(inside("topic", "describe", "slow", "-o", "json"))[0]["partitions"][0]["replicas"]
    inside("broker", "config", "-c", "reassignment.bytes.per.second.max=20000", "-c", "auto.balance.enable=false")
    try:
        to = next(number for number in (1, 2, 3) if number not in before)
        inside("reassign", "plan", "--to", str(to), "--topic", "slow")
        inside("reassign", "apply", "--no-wait")
        assert json.loads(inside("reassign", "status", "-o", "json"))["moving"] == 1
        assert inside("reassign", "cancel", "--topic", "made-meanwhile") == "No partition moves.\n"
        assert inside("reassign", "cancel") == f"slow[0] stays on brokers {before[0]}.\n"
        assert inside("reassign", "status") == "No partition moves.\n"
        assert json.loads(inside("topic", "describe", "slow", "-o", "json"))[0]["partitions"][0]["replicas"] == before
    finally:
        inside("broker", "config", "-d", "reassignment.bytes.per.second.max", "-d", "auto.balance.enable")


def test_a_process_that_took_the_number_of_a_node_is_not_touched(shell: Shell) -> None:
    """Process ids are reused: the file also holds the start time of the process."""
    home = Path(shell.directory) / "c" / "node-3"
    kept = (home / "pid").read_text()
    (home / "pid").write_text(json.dumps({"pid": os.getpid(), "began": 1}))
    assert "node 3 does not run" in shell.fails("sandbox", "kill", "3", *HERE)
    (home / "pid").write_text(kept)


def test_a_directory_without_a_cluster_is_told_apart(shell: Shell) -> None:
    assert "penstock sandbox up --dir nowhere" in shell.fails("sandbox", "status", "--dir", "nowhere")


def test_down_stops_all_and_up_finds_everything_again(shell: Shell) -> None:
    nodes = status(shell)
    shell("topic", "create", "kept", "-b", str(nodes[1]["address"]))
    assert shell("sandbox", "down", *HERE) == f"Stopped nodes {', '.join(map(str, nodes))}.\n"
    assert shell("sandbox", "down", *HERE) == "No node was running.\n"
    assert f"{len(nodes)} nodes serve" in shell("sandbox", "up", *HERE)
    assert "kept" in shell("topic", "list", "-b", str(status(shell)[3]["address"]))
