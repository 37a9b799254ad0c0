"""`penstock cluster decommission` on real nodes: refused where it is impossible, done once the broker is empty."""

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from harness.ports import free_port
from tests.system.commands import Shell

pytestmark = pytest.mark.xdist_group("cluster")

SANDBOX = "sandbox"
HERE = ("--dir", "c")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in whose directory four nodes run; nodes 1 to 3 are voters."""
    shell = Shell(tmp_path_factory.mktemp("decommission"))
    try:
        shell(SANDBOX, "up", "--nodes", "4", "--port", str(free_port()), *HERE)
        yield shell
    finally:
        shell.run(SANDBOX, "down", *HERE)


def addresses(shell: Shell) -> str:
    nodes = json.loads((shell.directory / "c" / "cluster.json").read_text())["nodes"]
    return ",".join(f"127.0.0.1:{each['port']}" for each in nodes)


def replicas_on(shell: Shell, node: int, *topics: str) -> int:
    found = json.loads(shell("topic", "describe", *topics, "-o", "json", "-b", addresses(shell)))
    return sum(node in part["replicas"] for topic in found for part in topic["partitions"])


def test_what_is_impossible_is_said_before_anything_moves(shell: Shell) -> None:
    at = ("-b", addresses(shell))
    shell("topic", "create", "wide", "-p", "1", "-r", "4", *at)
    told = shell.fails("cluster", "decommission", "4", *at)
    assert "broker 4 cannot be decommissioned: wide has 4 replicas" in told
    assert "there are only 3 brokers to take them: add a broker first" in told
    assert "node 2 is a voter of the metadata quorum (1, 2, 3)" in shell.fails("cluster", "decommission", "2", *at)
    assert "there is no broker 9 in this cluster" in shell.fails("cluster", "decommission", "9", *at)
    shell("topic", "delete", "wide", *at)
    shell("topic", "create", "narrow", "-p", "4", "-r", "1", *at)
    found = json.loads(shell("topic", "describe", "narrow", "-o", "json", *at))
    assert 4 in {each["leader"] for each in found[0]["partitions"]}, "nothing was marked: it still gets replicas"


@pytest.mark.parametrize("balances", [True, False])
def test_a_broker_is_emptied_by_the_cluster_or_from_here(shell: Shell, balances: bool) -> None:
    """The exit code is 1 as long as replicas are left; the same command continues."""
    topics = [f"orders-{balances}", f"visits-{balances}"]
    at = ("-b", addresses(shell))
    (shell.directory / "all.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "narrow", "partition": 0, "replicas": [1]}]})
    )
    shell("reassign", "apply", "all.json", "--balance" if balances else "--no-balance", *at)
    shell("topic", "create", *topics, "-p", "4", "-r", "3", *at)
    assert replicas_on(shell, 4, *topics)
    shell("produce", topics[0], "-q", *at, given=(b"x" * 1000 + b"\n") * 2000)
    shell("broker", "config", "-c", "reassignment.bytes.per.second.max=20000", *at)  # nothing moves at once
    told = shell.run("cluster", "decommission", "4", "--wait", "0", *at)
    assert (told.returncode, b"must not be stopped yet" in told.stderr) == (1, True)
    shell("broker", "config", "-d", "reassignment.bytes.per.second.max", *at)
    done = shell("cluster", "decommission", "4", *at)
    assert "Broker 4 has no replicas: it can be stopped." in done
    assert replicas_on(shell, 4, *topics) == 0
    shell("topic", "create", f"later-{balances}", "-p", "9", "-r", "1", *at)
    assert replicas_on(shell, 4, f"later-{balances}") == 0, "a broker that is leaving gets nothing"
    assert "Broker 4 may have replicas again" in shell("cluster", "decommission", "4", "--undo", *at)


def test_a_broker_that_was_killed_is_emptied_without_it(shell: Shell) -> None:
    at = ("-b", ",".join(addresses(shell).split(",")[:3]))
    shell("topic", "delete", "narrow", "later-True", "later-False", *at)  # nobody could copy their only replicas
    shell("topic", "create", "left", "-p", "4", "-r", "3", *at)
    assert replicas_on(shell, 4, "left")
    os.kill(json.loads((shell.directory / "c" / "node-4" / "pid").read_text())["pid"], signal.SIGKILL)
    assert "Broker 4 has no replicas" in shell("cluster", "decommission", "4", *at)
    assert replicas_on(shell, 4, "left") == 0


def test_a_broker_that_is_down_and_empty_is_removed_from_the_list(shell: Shell) -> None:
    """Otherwise `cluster health` always reports it as missing, and only kafka-cluster.sh unregister could end that."""
    at = ("-b", ",".join(addresses(shell).split(",")[:3]))

    def brokers() -> dict[int, str]:
        return {each["broker"]: each["state"] for each in json.loads(shell("broker", "list", "-o", "json", *at))}

    deadline_s = time.monotonic() + 60
    while brokers().get(4) == "up":  # it was just killed
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    if 4 in brokers():  # the test before may have removed it
        done = shell("cluster", "decommission", "4", *at)
        assert "Broker 4 has no replicas, and is down: it is removed from the list of brokers." in done
    assert sorted(brokers()) == [1, 2, 3]
    health = json.loads(shell.run("cluster", "health", "--wait", "30", "-o", "json", *at).stdout)
    assert [each["is_well"] for each in health if each["check"] == "broker"] == [True]
    assert "there is no broker 4 in this cluster" in shell.fails("cluster", "decommission", "4", *at)
