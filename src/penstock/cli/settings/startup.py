"""Turns a broker's settings into the plan that its node is started with."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.errors import Failed
from penstock.cli.settings.listeners import (
    Listener,
    NotServed,
    all_listeners,
    client_listeners,
    controller_names,
    inter_broker_listener,
    names,
    plaintext,
)
from penstock.client.bootstrap import Address, parse_address

ALLOWS_PLAINTEXT = "allow.plaintext.beyond.loopback"
FILE_ONLY = frozenset({ALLOWS_PLAINTEXT, "cluster.id"})
"""Settings that are not a broker's: only its file and the environment have them."""


@dataclass(frozen=True, slots=True)
class Role:
    """The roles of a node, and the addresses of the metadata quorum. By default a node is a cluster of its own."""

    is_broker: bool = True
    is_controller: bool = True
    listener: Listener | None = None
    """The controller's listener."""
    voters: tuple[tuple[int, Address], ...] = ()
    bootstrap_servers: tuple[Address, ...] = ()

    @property
    def quorum(self) -> str:
        """The addresses of the quorum, for people; empty for a node that needs no other node."""
        voters = [f"{node_id}@{address}" for node_id, address in self.voters]
        return ", ".join(voters if len(voters) > 1 else map(str, self.bootstrap_servers))


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one node."""

    cluster_id: str
    data_path: Path
    listeners: tuple[Listener, ...]
    """Those for clients; empty for a node that is only a controller."""
    inter_broker: str = "PLAINTEXT"
    """The name of the listener through which brokers reach each other."""
    node_id: int = 1
    static: Mapping[str, str] = field(default_factory=dict)
    """The settings of its file, by Kafka's names."""
    allows_plaintext: bool = False
    is_ephemeral: bool = False
    log_level: int = logging.WARNING
    log_format: str = "text"
    note: str | None = None
    """A note to the user about the choice of the port."""
    endpoint_path: Path | None = None
    """The file in which other commands find the address."""
    role: Role = field(default_factory=Role)
    metrics: Address | None = None
    """The address of the metrics; None if they are not served."""
    metrics_note: str | None = None
    """A note to the user about the choice of that port."""

    @property
    def address(self) -> Address:
        """Where its first listener is bound; the controller's if it has none for clients."""
        first = self.listeners[0] if self.listeners else self.role.listener
        assert first is not None
        return Address(first.host, first.port)


def plan_of(
    settings: Mapping[str, str], *, allows_plaintext: bool, log_level: int = logging.INFO, log_format: str = "text"
) -> Plan:
    """The plan of these settings; raises Failed if they contradict each other, NotServed if a node cannot do that."""
    role = role_of(settings)
    listeners = client_listeners(settings) if role.is_broker else []
    directories = [each.strip() for each in _data(settings).split(",") if each.strip()]
    if len(directories) != 1:
        raise NotServed(f"log.dirs names {len(directories)} directories, and a node has one: choose one of them")
    own = {name: text for name, text in settings.items() if name not in FILE_ONLY}
    return Plan(
        cluster_id=settings.get("cluster.id", "penstock"),
        data_path=Path(directories[0]),
        listeners=tuple(listeners),
        inter_broker=inter_broker_listener(settings, listeners) if listeners else "",
        node_id=_node_id(settings),
        static=own,
        allows_plaintext=allows_plaintext or settings.get(ALLOWS_PLAINTEXT, "").lower() == "true",
        log_level=log_level,
        log_format=log_format,
        role=role,
        metrics=metrics_address(settings),
    )


def metrics_address(settings: Mapping[str, str]) -> Address | None:
    """The address of the metrics, if it is set; raises Failed if it is not an address."""
    text = settings.get("metrics.listener", "").strip()
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise Failed(f"metrics.listener: {text!r} has no port: write host:port, 127.0.0.1:9644 for example")
    if port == "0":  # any free port
        return Address(_address(host, "metrics.listener").host, 0)
    return _address(text, "metrics.listener")


def _node_id(settings: Mapping[str, str]) -> int:
    return int(settings.get("node.id", settings.get("broker.id", "1")))


def _data(settings: Mapping[str, str]) -> str:
    return settings.get("log.dirs") or settings.get("log.dir") or "penstock-data"


# --- the quorum -------------------------------------------------------------------------------------------------------


def role_of(settings: Mapping[str, str]) -> Role:
    """The roles of the node, and the quorum; raises Failed if they are not decided."""
    node_id, voters, servers = _node_id(settings), _voters(settings), _bootstrap_servers(settings)
    roles = names(settings.get("process.roles"))
    is_controller = "CONTROLLER" in roles if roles else not voters or node_id in dict(voters)
    is_broker = "BROKER" in roles if roles else True
    found = [each for each in all_listeners(settings) if each.name in controller_names(settings)]
    listener = plaintext(found[0]) if found and is_controller else None
    if listener is None and is_controller and (voters or servers or not is_broker):
        raise Failed(
            "this node is a controller, and nothing says where others reach it: add CONTROLLER://host:port to "
            "listeners, and set controller.listener.names=CONTROLLER"
        )
    if not voters and listener is not None and (own := _own_address(listener, servers)) is not None:
        voters, servers = ((node_id, own),), ()
    if voters and is_controller and node_id not in dict(voters):
        raise Failed(
            f"process.roles has controller, and controller.quorum.voters has no {node_id}@host:port: add it on all "
            "nodes, or set controller.quorum.bootstrap.servers and add the node to the quorum once it runs"
        )
    if not is_controller and not voters and not servers:
        raise Failed(
            "this node is no controller, and nothing says where the controllers are: set controller.quorum.voters"
        )
    return Role(is_broker, is_controller, listener, voters, servers)


def _own_address(listener: Listener, servers: tuple[Address, ...]) -> Address | None:
    """The address of this node in the quorum if no other server is named: then it is the first voter of its cluster."""
    if not servers:
        host = "localhost" if listener.host in {"", "0.0.0.0", "::"} else listener.host  # noqa: S104 - compared only
        return Address(host, listener.port)
    mine = [
        each
        for each in servers
        if each.port == listener.port and each.host in {listener.host, "localhost", "127.0.0.1"}
    ]
    return mine[0] if len(servers) == 1 and mine else None


def _voters(settings: Mapping[str, str]) -> tuple[tuple[int, Address], ...]:
    found = []
    for part in _parts(settings.get("controller.quorum.voters")):
        node_id, at, address = part.partition("@")
        if not at or not node_id.isdecimal():
            raise Failed(f"controller.quorum.voters: {part!r} is not id@host:port, 1@localhost:9093 for example")
        found.append((int(node_id), _address(address, "controller.quorum.voters")))
    return tuple(found)


def _bootstrap_servers(settings: Mapping[str, str]) -> tuple[Address, ...]:
    name = "controller.quorum.bootstrap.servers"
    return tuple(_address(part, name) for part in _parts(settings.get(name)))


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _address(text: str, setting: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise Failed(f"{setting}: {error}") from None
