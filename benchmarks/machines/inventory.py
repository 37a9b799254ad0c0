"""The inventory: a TOML file that lists the machines and the processes on them.

Invariant: an error in the file is reported in a sentence before anything is started.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PORTS_PER_NODE = 2


class WrongInventory(ValueError):
    """The file cannot be used; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; without `ssh`, commands run in a local shell."""

    name: str
    address: str
    """The address at which other machines reach it."""
    ssh: str | None = None
    """The target argument of ssh, user@host for example."""
    brokers: int = 0
    is_controller: bool = False
    """Whether the first of its brokers is a controller, too."""
    generators: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic that generators write and read."""

    partitions: int = 12
    replicas: int = 3
    durability: str = "fsync"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of every generator."""

    seconds: float = 30.0
    record_bytes: int = 100
    batch_bytes: int = 65_536
    connections: int = 4
    in_flight: int = 5


@dataclass(frozen=True, slots=True)
class Node:
    """A process of `penstock server`."""

    node_id: int
    machine: Machine
    port: int
    controller_port: int | None

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{self.machine.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Inventory:
    """The whole inventory."""

    machines: tuple[Machine, ...]
    topic: Topic = Topic()
    load: Load = Load()
    directory: str = "/var/tmp/penstock-machines"
    """The directory on each machine; created at the start and removed at the end."""
    command: str = "penstock"
    """The `penstock` command on each machine."""
    port: int = 19_092
    """The first port that is used."""

    def home(self, machine: Machine) -> str:
        """The folder of a machine's nodes; entries of the inventory may share one physical machine."""
        return f"{self.directory}/{machine.name}"

    def nodes(self) -> list[Node]:
        """The nodes, numbered over all machines; a controller is the first node of its machine."""
        found: list[Node] = []
        for machine in self.machines:
            for at in range(machine.brokers):
                port = self.port + _PORTS_PER_NODE * at
                has_seat = machine.is_controller and at == 0
                found.append(Node(len(found) + 1, machine, port, port + 1 if has_seat else None))
        return found

    @property
    def bootstrap(self) -> str:
        """The address of one broker of every machine."""
        firsts = {node.machine.name: node.address for node in reversed(self.nodes())}
        return ",".join(firsts[machine.name] for machine in self.machines if machine.name in firsts)


def read(path: Path) -> Inventory:
    """Reads an inventory from a file; raises WrongInventory if it is invalid."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise WrongInventory(f"{path} is no TOML: {error}") from None
    rows = said.pop("machine", [])
    if not isinstance(rows, list) or not rows:
        raise WrongInventory(f"{path} names no machine: add [[machine]] with name and address")
    if "controller" in said:
        raise WrongInventory("controller is said of a machine: put it below its [[machine]]")
    machines = tuple(_machine(row) for row in rows)
    parts: dict[str, Any] = {}
    for name, kind in (("topic", Topic), ("load", Load)):
        if name in said:
            parts[name] = _made(kind, said.pop(name), f"[{name}]")
    inventory = _made(Inventory, {**said, **parts, "machines": machines}, str(path))
    _check(inventory)
    return inventory


def _machine(row: Mapping[str, Any]) -> Machine:
    said = dict(row)
    if "controller" in said:
        said["is_controller"] = said.pop("controller")
    name = str(said.get("name", ""))
    if not _NAME.fullmatch(name):
        raise WrongInventory(f"{name!r} names no machine: letters, digits, dots and dashes do")
    if not said.get("address"):
        raise WrongInventory(f"machine {name} has no address: say where the others reach it")
    return _made(Machine, said, f"machine {name}")


def _made(kind: type[T], said: Mapping[str, Any], where: str) -> T:
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    for name in said:
        if name not in known:
            raise WrongInventory(f"{where}: nobody knows {name}; there are {', '.join(sorted(known))}")
    try:
        return kind(**said)
    except TypeError as error:
        raise WrongInventory(f"{where}: {error}") from None


def _check(inventory: Inventory) -> None:
    names = [machine.name for machine in inventory.machines]
    nodes = inventory.nodes()
    seats = sum(node.controller_port is not None for node in nodes)
    if len(set(names)) < len(names):
        raise WrongInventory("two machines have the same name: give each its own")
    if not seats:
        raise WrongInventory("nobody is a controller: say controller = true of one machine with brokers, or of three")
    if len(nodes) < inventory.topic.replicas:
        raise WrongInventory(
            f"{inventory.topic.replicas} replicas need as many brokers, and there are {len(nodes)}: "
            "name more, or set replicas in [topic]"
        )
    if not any(machine.generators for machine in inventory.machines):
        raise WrongInventory("nobody makes a load: say generators = 1 of a machine, best of one without brokers")
    if not inventory.directory.startswith("/") or len(Path(inventory.directory).parts) < 3:
        raise WrongInventory(f"directory {inventory.directory!r} will be removed: name one of its own, below another")


def properties_of(node: Node, nodes: Sequence[Node], inventory: Inventory) -> str:
    """The settings that a node is started with."""
    voters = ",".join(
        f"{each.node_id}@{each.machine.address}:{each.controller_port}" for each in nodes if each.controller_port
    )
    listeners = f"PLAINTEXT://{node.address}"
    if node.controller_port is not None:
        listeners += f",CONTROLLER://{node.machine.address}:{node.controller_port}"
    lines = {
        "cluster.id": "machines",
        "node.id": str(node.node_id),
        "process.roles": "broker" if node.controller_port is None else "broker,controller",
        "listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "broker.rack": node.machine.name,
        "log.dirs": f"{inventory.home(node.machine)}/node-{node.node_id}/data",
        "offsets.topic.replication.factor": str(min(3, len(nodes))),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
