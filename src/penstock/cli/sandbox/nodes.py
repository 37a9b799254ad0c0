"""The nodes of a cluster on this machine: their files, their ports, their processes.

    DIR/cluster.json              the cluster's id, and number, ports and role of every node
    DIR/.penstock/endpoint        the addresses of all nodes; the default DIR has them beside it, too
    DIR/node-1/server.properties  the settings that `penstock server` runs it with; may be edited
    DIR/node-1/data, log, pid     its records, its log output, and its process

A pid file holds the process id and the start time of the process: process ids are reused, and a process with another
start time is not the node and is never signalled.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.errors import Failed
from penstock.cli.sandbox_place import FILE, Sandbox

DirOption = Annotated[Path, typer.Option("--dir", help="Where the cluster's files are.")]
HOST: Final = "127.0.0.1"
PORTS_TRIED: Final = 2_000
PORTS_END: Final = 65_536
STOP_S: Final = 30.0
VOTERS_MAX: Final = 3
PAUSE_S: Final = 0.05
REPLICAS: Final = 3
IN_SYNC_MIN: Final = 2
SAFE: Final = {"default.replication.factor": str(REPLICAS), "min.insync.replicas": str(IN_SYNC_MIN)}
"""Settings of clusters that are created with three nodes or more. Kafka's own defaults are one and one."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """One node, and its ports."""

    node_id: int
    port: int
    controller_port: int | None
    """None for a node that is only a broker."""
    metrics_port: int | None = None
    """None for a node that was created before nodes served metrics."""

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def controller_address(self) -> str | None:
        """The address for other nodes."""
        return None if self.controller_port is None else f"{HOST}:{self.controller_port}"

    @property
    def metrics(self) -> str | None:
        """The URL of its metrics."""
        return None if self.metrics_port is None else f"http://{HOST}:{self.metrics_port}/metrics"


class LocalCluster:
    """A cluster below one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cluster_id = ""
        self.nodes: list[NodePlace] = []

    # --- reading

    @classmethod
    def open(cls, path: Path) -> "LocalCluster":
        """Opens the cluster that was created there."""
        cluster = cls(path)
        try:
            said = json.loads((path / FILE).read_text(encoding="utf-8"))
            cluster.cluster_id = said["cluster_id"]
            cluster.nodes = [NodePlace(**each) for each in said["nodes"]]
        except FileNotFoundError:
            raise Failed(
                f"there is no cluster in {path}: `penstock sandbox up --dir {path}` makes one, or say where yours is"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(
                f"{path / 'cluster.json'} cannot be read ({error}): restore it, or choose another --dir"
            ) from None
        return cluster

    def node(self, node_id: int) -> NodePlace:
        """The node with this number."""
        for each in self.nodes:
            if each.node_id == node_id:
                return each
        known = ", ".join(str(each.node_id) for each in self.nodes)
        raise Failed(f"there is no node {node_id} in {self.path}; there are {known}")

    def home(self, node_id: int) -> Path:
        """The directory of a node's files."""
        return self.path / f"node-{node_id}"

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.address for each in self.nodes)

    @property
    def place(self) -> Sandbox:
        """The directory and the addresses, as other commands use them."""
        return Sandbox(self.path, self.bootstrap)

    def tell_address(self) -> None:
        """Writes the addresses where commands find them that start below the cluster's directory, or beside it."""
        from penstock.client.bootstrap import ENDPOINT_FILE, write_endpoint

        write_endpoint(self.path, self.bootstrap)
        if self.path.absolute().parent.name == ENDPOINT_FILE.parent.name:
            write_endpoint(self.path.absolute().parent.parent, self.bootstrap)

    # --- creating nodes

    def grow(self, count: int, first_port: int) -> list[NodePlace]:
        """Creates nodes on free ports until there are `count`; the first ones are voters. Returns the new nodes."""
        voters = (VOTERS_MAX if count >= VOTERS_MAX else 1) if not self.nodes else 0
        made: list[NodePlace] = []
        taken = {port for each in self.nodes for port in (each.port, each.controller_port, each.metrics_port)}
        for node_id in range(len(self.nodes) + 1, count + 1):
            port = _free_port(first_port, taken)
            taken.add(port)
            controller_port = _free_port(first_port, taken) if node_id <= voters else None
            taken.add(controller_port)
            made.append(NodePlace(node_id, port, controller_port))
        for number, node in enumerate(made):  # after the others, so that those are consecutive
            made[number] = replace(node, metrics_port=_free_port(first_port, taken))
            taken.add(made[number].metrics_port)
        self.nodes += made
        if made:
            self.cluster_id = self.cluster_id or f"local-{os.urandom(8).hex()}"
            for each in made:
                self._write_settings(each)
            text = json.dumps({"cluster_id": self.cluster_id, "nodes": [asdict(each) for each in self.nodes]}, indent=2)
            (self.path / FILE).write_text(text + "\n", encoding="utf-8")
            self.tell_address()
        return made

    @property
    def _outlives_a_node(self) -> bool:
        """Whether it was created with three nodes or more: it can lose one, and its topics should outlive that."""
        return sum(each.controller_port is not None for each in self.nodes) >= VOTERS_MAX

    def _write_settings(self, node: NodePlace) -> None:
        home = self.home(node.node_id)
        home.mkdir(parents=True, exist_ok=True)
        voters = ",".join(
            f"{each.node_id}@{each.controller_address}" for each in self.nodes if each.controller_port is not None
        )
        replicas = min(REPLICAS, len(self.nodes))
        listeners = f"PLAINTEXT://{node.address}"
        if node.controller_port is not None:
            listeners += f",CONTROLLER://{node.controller_address}"
        metrics = {} if node.metrics_port is None else {"metrics.listener": f"{HOST}:{node.metrics_port}"}
        lines = {
            "cluster.id": self.cluster_id,
            "node.id": str(node.node_id),
            "process.roles": "broker" if node.controller_port is None else "broker,controller",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": str((home / "data").resolve()),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min(IN_SYNC_MIN, replicas)),
            **(SAFE if self._outlives_a_node else {}),
            **metrics,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (home / "server.properties").write_text(text, encoding="utf-8")

    # --- processes

    def pid(self, node_id: int) -> int | None:
        """The process id of a node, if it runs."""
        try:
            said = json.loads((self.home(node_id) / "pid").read_text(encoding="utf-8"))
            pid, began = int(said["pid"]), int(said["began"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if _began(pid) == began else None

    def start(self, node_id: int) -> None:
        """Starts a node that does not run."""
        home = self.home(node_id)
        command = [sys.executable, "-m", "penstock", "server", "--config", str(home / "server.properties")]
        with (home / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        began = _began(process.pid)
        (home / "pid").write_text(json.dumps({"pid": process.pid, "began": began}), encoding="utf-8")

    def signal(self, node_id: int, number: int) -> bool:
        """Sends a signal to a node's process, and to no other; False if it does not run."""
        pid = self.pid(node_id)
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_for_end(self, node_id: int, limit_s: float = STOP_S) -> bool:
        """Waits until the process has ended; False if it did not in time."""
        deadline = time.monotonic() + limit_s
        while self.pid(node_id) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_S)
        (self.home(node_id) / "pid").unlink(missing_ok=True)
        return True

    def kill(self, node_id: int) -> bool:
        """Kills a node with SIGKILL; False if it did not run."""
        was_there = self.signal(node_id, signal.SIGKILL)
        self.wait_for_end(node_id)
        return was_there

    def last_words(self, node_id: int) -> str:
        """The last line of a node's log."""
        try:
            lines = (self.home(node_id) / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


def _began(pid: int) -> int | None:
    """The start time of a process, in clock ticks since boot; None if there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _free_port(first: int, taken: "set[int | None]") -> int:
    end = min(first + PORTS_TRIED, PORTS_END)
    for port in range(first, end):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
                probe.listen()
            except OSError:
                continue
            return port
    raise Failed(f"ports {first} to {end - 1} are all taken: say with --port where to look from")
