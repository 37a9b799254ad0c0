"""A cluster with two listeners, and clients of five families on each side of it, which cannot reach the other side.

HOST and DOCKER are networks without a way between them. Every node listens on all its addresses and advertises one per
listener. Brokers reach each other on the side of DOCKER only, which is their inter.broker.listener.name.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

import pytest

from tests.system.commands import ENVIRONMENT, PENSTOCK
from tests.system.listener_clients import BONUS, FAMILIES, NODES, install
from tests.system.network import Sides
from tests.system.victim import ROOT

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("listeners")]

HOST: Final = "host"
DOCKER: Final = "docker"
PORTS: Final = {HOST: 9092, DOCKER: 29092}
CONTROLLER_PORT: Final = 9093
STOP_S: Final = 300
STOPPED: Final = 3
"""The node whose leaders and coordinators move."""


def places(network: Sides, side: str) -> list[str]:
    """The addresses of the nodes on a side."""
    return [f"{network.address(side, node_id)}:{PORTS[side]}" for node_id in NODES]


def properties(network: Sides, node_id: int) -> str:
    """The settings of a node."""
    listened = [f"{side.upper()}://0.0.0.0:{port}" for side, port in PORTS.items()]
    advertised = [f"{side.upper()}://{network.address(side, node_id)}:{port}" for side, port in PORTS.items()]
    voters = [f"{each}@{network.address(DOCKER, each)}:{CONTROLLER_PORT}" for each in NODES]
    settings = {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "log.dirs": "data",
        "listeners": ",".join([*listened, f"CONTROLLER://0.0.0.0:{CONTROLLER_PORT}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": "HOST:PLAINTEXT,DOCKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DOCKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "allow.plaintext.beyond.loopback": "true",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def a_process(command: list[str], directory: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process with a log in its directory; it is killed at the end."""
    directory.mkdir()
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=ENVIRONMENT | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]", directory: Path) -> str:
    """The next line of its output."""
    output: IO[str] | None = process.stdout
    assert output is not None
    line = output.readline()
    assert line, (directory / "log").read_text()[-4000:]
    return line


def test_clients_on_both_sides_follow_leaders_by_the_addresses_of_their_listener(tmp_path: Path) -> None:
    install()
    with ExitStack() as stack:
        network = stack.enter_context(Sides(f"pl{os.getpid()}", NODES, (HOST, DOCKER), routed=DOCKER))
        nodes = {}
        for node_id in NODES:
            file = tmp_path / f"{node_id}.properties"
            file.write_text(properties(network, node_id))
            command = [*network.prefix(node_id), *PENSTOCK, "server", "--config", str(file)]
            nodes[node_id] = stack.enter_context(a_process(command, tmp_path / f"node-{node_id}"))
        for node_id, node in nodes.items():
            line = line_of(node, tmp_path / f"node-{node_id}")
            while not line.startswith("Penstock "):  # it says that it waits for the quorum
                line = line_of(node, tmp_path / f"node-{node_id}")
        sides = {}
        for side, other in ((HOST, DOCKER), (DOCKER, HOST)):
            program = [sys.executable, "-m", "tests.system.listener_clients"]
            arguments = [side, ",".join(places(network, side)), ",".join(places(network, other))]
            command = [*network.prefix(side), *program, *arguments]
            sides[side] = stack.enter_context(a_process(command, tmp_path / side))
        for side, clients in sides.items():
            assert line_of(clients, tmp_path / side) == "read\n"
        nodes[STOPPED].send_signal(signal.SIGTERM)
        assert nodes[STOPPED].wait(STOP_S) == 0
        for clients in sides.values():
            assert clients.stdin is not None
            clients.stdin.write("go on\n")
            clients.stdin.flush()
        for side, clients in sides.items():
            versions = json.loads(line_of(clients, tmp_path / side))
            assert versions.keys() - {BONUS} == set(FAMILIES)
            assert clients.wait(STOP_S) == 0
