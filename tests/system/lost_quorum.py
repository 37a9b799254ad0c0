"""Clusters of real processes with a fault, and the six commands that must report it within their time limit.

`Local` is a cluster of five nodes on this machine: 1 to 3 are controllers and brokers, 4 and 5 brokers. `Cut` is three
nodes in network namespaces and a client in a fourth one, on the side of node 1 when the network is cut: the router
drops packets between the sides, so connections are neither accepted nor refused. `sandbox status` is for nodes on one
machine; for it, packets to and from the ports of two nodes are dropped on the loopback device of a namespace.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harness.ports import free_port
from tests.system.cluster_faults import Town
from tests.system.commands import ENVIRONMENT, Shell
from tests.system.network import Loopback, Network
from tests.system.victim import ROOT

TIMEOUT_S: Final = 5.0
PROCESS_S: Final = 300.0
HEALED_S: Final = 480.0
FENCED_S: Final = 1.5
"""The leader of a quorum counts as confirmed for a second after the last request of a majority."""
SANDBOX: Final = "sandbox"
HERE: Final = ("--dir", "c")
COMMANDS: Final = ("health", "quorum", "status", "create", "doctor", "reassign")
ONE_GONE, TWO_GONE, THREE_GONE = "1 of 3 controllers gone", "2 of 3 controllers gone", "3 of 3 controllers gone"
BROKERS_GONE, STOPPED, CUT = "brokers gone", "2 of 3 controllers stopped", "network cut"
KILLED: Final = {ONE_GONE: (1,), TWO_GONE: (1, 2), THREE_GONE: (1, 2, 3), BROKERS_GONE: (4, 5)}


Run = Callable[[dict[str, list[str]], Path, Sequence[str]], dict[str, "Outcome"]]
"""`run_together` or `run_one_by_one`: runs commands by name in a directory, behind a prefix."""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str
    seconds: float
    """How long it took, without the time in which it waited for a processor."""

    @property
    def first_line(self) -> str:
        """The first line that a user sees about the state of the cluster: before it, some commands name the cluster."""
        lines = (self.out or self.err).splitlines()
        return next((line for line in lines if not line.startswith("Cluster ")), "")


def command_lines(bootstrap: str, directory: Sequence[str]) -> dict[str, list[str]]:
    """The six commands with their arguments; `status` is for clusters on this machine only."""
    at, limit = ["-b", bootstrap], ["--timeout", str(TIMEOUT_S)]
    lines = {
        "health": ["cluster", "health", *at, *limit],
        "quorum": ["quorum", "status", *at, *limit],
        "status": [SANDBOX, "status", *directory, *limit],
        "create": ["topic", "create", f"new-{time.monotonic_ns()}", *at, *limit],
        "doctor": ["doctor", *at, *limit],
        "reassign": ["reassign", "apply", "plan.json", *at, *limit],
    }
    return {name: line for name, line in lines.items() if name != "status" or directory}


def run_together(lines: dict[str, list[str]], directory: Path, prefix: Sequence[str] = ()) -> dict[str, Outcome]:
    """Runs all commands at the same time."""
    running = {}
    for name, line in lines.items():
        file = directory / f"{name}.seconds"
        file.unlink(missing_ok=True)
        command = [*prefix, sys.executable, "-m", "tests.system.timed_command", str(file), *line]
        paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        running[name] = subprocess.Popen(
            command,
            cwd=directory,
            env=ENVIRONMENT | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    found = {}
    for name, process in running.items():
        try:
            out, err = process.communicate(timeout=PROCESS_S)
        finally:
            process.kill()
        file = directory / f"{name}.seconds"
        assert file.exists(), err
        found[name] = Outcome(process.returncode, out, err, float(file.read_text()))
    return found


def run_one_by_one(lines: dict[str, list[str]], directory: Path, prefix: Sequence[str] = ()) -> dict[str, Outcome]:
    """Runs the commands one after the other: it takes longer, and they do not keep each other waiting."""
    return {name: run_together({name: line}, directory, prefix)[name] for name, line in lines.items()}


def write_plan(directory: Path) -> None:
    """A plan that moves nothing: it names the topic `kept` where it is."""
    partitions = [{"topic": "kept", "partition": 0, "replicas": [4, 5]}]
    (directory / "plan.json").write_text(json.dumps({"version": 1, "partitions": partitions}))


class Local:
    """See the module."""

    def __init__(self, directory: Path, nodes: int = 5, prefix: Sequence[str] = ()) -> None:
        """`prefix` runs the nodes and commands elsewhere, such as in a network namespace."""
        self.shell = Shell(directory)
        self._nodes = nodes
        self._prefix = prefix
        self._hurt: frozenset[int] = frozenset()
        self._is_stopped = False

    def __enter__(self) -> Self:
        nodes, port = str(self._nodes), str(free_port())
        self._must(SANDBOX, "up", "--nodes", nodes, "--port", port, "--timeout", str(HEALED_S), *HERE)
        # Tests place the replicas of their topics; the cluster must not move them to other brokers.
        at = ("-b", self.address(self._nodes), "--timeout", str(HEALED_S))
        self._must("broker", "config", "-c", "auto.balance.enable=false", *at)
        write_plan(self.shell.directory)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._go_on()
        self.shell.run(SANDBOX, "down", *HERE, prefix=self._prefix, limit_s=HEALED_S)

    def address(self, *node_ids: int) -> str:
        """The addresses of nodes for clients."""
        return ",".join(f"127.0.0.1:{each['port']}" for each in self._places(node_ids))

    def ports(self, *node_ids: int) -> list[int]:
        """All ports of nodes."""
        return [port for each in self._places(node_ids) for name, port in each.items() if name.endswith("port")]

    def _places(self, node_ids: Sequence[int]) -> list[dict[str, int]]:
        nodes = json.loads((self.shell.directory / "c" / "cluster.json").read_text())["nodes"]
        return [each for each in nodes if each["node_id"] in node_ids]

    def hurt(self, fault: str) -> None:
        """Brings the fault about. Starts nodes that an earlier fault has killed, unless this one kills them, too."""
        wanted = frozenset(KILLED.get(fault, ()))
        if self._is_stopped or not self._hurt <= wanted:
            self.heal()
        if fault == STOPPED:
            self._is_stopped = True
            self._send(signal.SIGSTOP, (1, 2))
        self._send(signal.SIGKILL, sorted(wanted - self._hurt))
        self._hurt = wanted
        time.sleep(FENCED_S)
        if fault == ONE_GONE:
            self._settle()

    def _settle(self) -> None:
        """Waits until the remaining controllers have a leader, and `kept` is led: a busy machine takes its time."""
        at = ("-b", self.address(4, 5), "--timeout", "10")
        for line in (("quorum", "status", *at), ("topic", "describe", "kept", *at)):
            deadline = time.monotonic() + HEALED_S
            while (done := self.shell.run(*line)).returncode:
                assert time.monotonic() < deadline, (done.stdout + done.stderr).decode()

    def heal(self) -> None:
        """Waits until all nodes serve again, and every replica is in sync."""
        self._go_on()
        self._must(SANDBOX, "up", "--timeout", str(HEALED_S), *HERE)
        self._must("cluster", "health", "--wait", str(HEALED_S), *HERE)
        self._hurt = frozenset()

    def fenced(self) -> int:
        """How often brokers 4 and 5 were fenced: if they run, a busy machine delayed heartbeats."""
        return sum(log.count(f"Broker {broker} is fenced") for log in self._logs() for broker in (4, 5))

    def elected(self) -> int:
        """How often a controller was elected: with no new fault, a busy machine delayed requests of controllers."""
        return sum(log.count("[quorum-leader]") for log in self._logs())

    def log(self, node_id: int) -> str:
        """The log of a node."""
        return (self.shell.directory / "c" / f"node-{node_id}" / "log").read_text()

    def _logs(self) -> list[str]:
        return [path.read_text() for path in (self.shell.directory / "c").glob("node-*/log")]

    def _must(self, *line: str) -> None:
        done = self.shell.run(*line, prefix=self._prefix, limit_s=HEALED_S + PROCESS_S)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()

    def _go_on(self) -> None:
        if self._is_stopped:
            self._send(signal.SIGCONT, (1, 2))
        self._is_stopped = False

    def _send(self, number: int, node_ids: Sequence[int]) -> None:
        for each in node_ids:
            os.kill(json.loads((self.shell.directory / "c" / f"node-{each}" / "pid").read_text())["pid"], number)

    def outcomes(self, run: Run) -> dict[str, Outcome]:
        """Runs the commands, which find the cluster by its brokers 4 and 5."""
        return run(command_lines(self.address(4, 5), HERE), self.shell.directory, ())


def outcomes_of_a_cut(directory: Path, run: Run) -> dict[str, Outcome]:
    """Runs the commands on the smaller side of a network that is cut."""
    machine, town = directory / "machine", directory / "town"
    machine.mkdir()
    town.mkdir()
    return {"status": _status_of_a_cut(machine)} | _outcomes_of_a_cut(town, run)


def _status_of_a_cut(directory: Path) -> Outcome:
    with ExitStack() as stack:
        machine = stack.enter_context(Loopback(f"ql{os.getpid()}"))
        prefix = machine.prefix(machine.PLACE)
        local = stack.enter_context(Local(directory, 3, prefix))
        time.sleep(FENCED_S)
        for port in local.ports(1, 2):
            machine.cut(port)
        time.sleep(FENCED_S)
        line = command_lines(local.address(3), HERE)["status"]
        return run_together({"status": line}, directory, prefix)["status"]


def _outcomes_of_a_cut(directory: Path, run: Run) -> dict[str, Outcome]:
    with ExitStack() as stack:
        network = stack.enter_context(Network(f"qc{os.getpid()}", (1, 2, 3, 4)))
        network.enter()
        town = stack.enter_context(Town(directory, network=network))
        town.until_all_serve()
        time.sleep(FENCED_S)
        for here in (1, 4):
            for there in (2, 3):
                network.cut(here, there)
                network.cut(there, here)
        time.sleep(FENCED_S)
        write_plan(directory)
        return run(command_lines(town.bootstrap, ()), directory, network.prefix(4))
