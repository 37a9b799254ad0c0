"""From a broker's settings to what the node is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.failing import Failed
from penstock.cli.listeners import Listener, names, parse_listeners, parse_protocol_map

ALLOWS_PLAINTEXT = "allow.plaintext.beyond.loopback"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one node."""

    cluster_id: str
    data_path: Path
    port: int
    host: str = "127.0.0.1"
    node_id: int = 1
    static: Mapping[str, str] = field(default_factory=dict)
    """What its file says, by Kafka's names."""
    allows_plaintext: bool = False
    is_ephemeral: bool = False
    is_verbose: bool = False
    note: str | None = None
    """What the user should know about the choice of the port."""
    endpoint_path: Path | None = None
    """Where other commands look up the address."""


def plan_of(settings: Mapping[str, str], *, allows_plaintext: bool, is_verbose: bool) -> Plan:
    """The plan; Failed says what this version cannot do."""
    listener = _only_listener(settings)
    directories = [each.strip() for each in _data(settings).split(",") if each.strip()]
    if len(directories) != 1:
        raise Failed(f"log.dirs names {len(directories)} directories, and a node has one: choose one of them")
    own = {name: text for name, text in settings.items() if name not in {ALLOWS_PLAINTEXT, "cluster.id"}}
    return Plan(
        cluster_id=settings.get("cluster.id", "penstock"),
        data_path=Path(directories[0]),
        host=listener.host,
        port=listener.port,
        node_id=int(settings.get("node.id", settings.get("broker.id", "1"))),
        static=own,
        allows_plaintext=allows_plaintext or settings.get(ALLOWS_PLAINTEXT, "").lower() == "true",
        is_verbose=is_verbose,
    )


def _data(settings: Mapping[str, str]) -> str:
    return settings.get("log.dirs") or settings.get("log.dir") or "penstock-data"


def _only_listener(settings: Mapping[str, str]) -> Listener:
    protocols = parse_protocol_map(settings.get("listener.security.protocol.map"))
    listeners = parse_listeners(settings.get("listeners", "PLAINTEXT://localhost:9092"), protocols)
    controllers = names(settings.get("controller.listener.names"))
    open_to_clients = [each for each in listeners if each.name not in controllers]
    if len(open_to_clients) != 1:
        found = ", ".join(each.name for each in open_to_clients) or "none"
        raise Failed(f"a node serves one listener for clients, and listeners has {found}: keep one")
    (listener,) = open_to_clients
    if listener.protocol != "PLAINTEXT":
        raise Failed(f"listener {listener.name} is {listener.protocol}, which is not served yet: use PLAINTEXT")
    return listener
