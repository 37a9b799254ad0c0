"""Private networks of namespaces.

`Network` has every node in a namespace with its own address, and a router between them that can cut links. The router
cuts one direction: packets that one node sends to another are dropped, and neither node is notified. A process that
wants to connect to the nodes enters the router (`Network.enter`).

`Sides` has nodes on several networks that do not reach each other. `Loopback` is one namespace, for processes that find
each other on 127.0.0.1; packets to and from a port of it can be dropped.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

CLONE_NEWNET: Final = 0x40000000
PREFIX: Final = "10.77"
SIDE_FIRST: Final = 78
"""The network of the first side is 10.78.0.0/16, that of the second 10.79.0.0/16."""


class _Namespaces:
    """Namespaces with names in common; they are deleted at the end."""

    def __init__(self, name: str, node_ids: Iterable[int]) -> None:
        self._name = name
        self._node_ids = list(node_ids)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _set_up(self) -> None:
        raise NotImplementedError

    def namespace(self, place: int | str) -> str:
        """The name of the namespace of a node or of a side."""
        return f"{self._name}-{place}"

    def prefix(self, place: int | str) -> list[str]:
        """The command prefix that runs a command in the namespace of a node or of a side."""
        return ["ip", "netns", "exec", self.namespace(place)]

    def _make(self, place: int | str, *, routes: bool = False) -> None:
        namespace = self.namespace(place)
        _run("ip", "netns", "add", namespace)
        self._stack.callback(_run, "ip", "netns", "del", namespace)
        self._in(place, "ip", "link", "set", "lo", "up")
        self._in(place, "sysctl", "-qw", f"net.ipv4.ip_forward={int(routes)}")

    def _connect(self, router: str, node_id: int, link: str, network: str) -> None:
        """Connects a node with a router: the node has address 2 of a network of its own there, the router address 1."""
        outer, inner = f"{self._name}-{router}", f"{self._name}-{node_id}"
        outside = f"n{node_id}"
        _run("ip", "-n", outer, "link", "add", outside, "type", "veth", "peer", "name", link, "netns", inner)
        for namespace, each, host in ((outer, outside, 1), (inner, link, 2)):
            _run("ip", "-n", namespace, "addr", "add", f"{network}.{node_id}.{host}/24", "dev", each)
            _run("ip", "-n", namespace, "link", "set", each, "up")

    def _in(self, place: int | str, *command: str) -> None:
        _run(*self.prefix(place), *command)


class Network(_Namespaces):
    """Namespaces `<name>-router`, `<name>-1`, `<name>-2` and so on."""

    def __init__(self, name: str, node_ids: Iterable[int]) -> None:
        super().__init__(name, node_ids)
        self._cuts: set[tuple[int, int]] = set()

    def _set_up(self) -> None:
        self._make("router", routes=True)
        for node_id in self._node_ids:
            self._make(node_id)
            self._connect("router", node_id, "eth0", PREFIX)
            self._in(node_id, "ip", "route", "add", "default", "via", f"{PREFIX}.{node_id}.1")

    def address(self, node_id: int) -> str:
        """A node's address."""
        return f"{PREFIX}.{node_id}.2"

    def enter(self) -> None:
        """Moves this thread, and processes it starts from now on, into the router until the end."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._stack.callback(_go_to, before)
        _go_to(os.open(f"/run/netns/{self._name}-router", os.O_RDONLY))

    # --- cuts

    def cut(self, sender: int, receiver: int) -> None:
        """Drops all packets from the sender to the receiver."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            self._rule("add", sender, receiver)

    def heal(self) -> None:
        """Removes all cuts."""
        for sender, receiver in self._cuts:
            self._rule("del", sender, receiver)
        self._cuts.clear()

    def _rule(self, word: str, sender: int, receiver: int) -> None:
        way = ["from", self.address(sender), "to", self.address(receiver)]
        self._in("router", "ip", "rule", word, *way, "blackhole")


class Sides(_Namespaces):
    """Namespaces `<name>-1`, `<name>-2` and so on for the nodes, `<name>-<side>` for the clients of each side.

    A node has an address on every side. A client reaches those of its side alone, and so does a node that is connected
    to another one: only `routed` sides let nodes reach each other.
    """

    def __init__(self, name: str, node_ids: Iterable[int], sides: Sequence[str], routed: str) -> None:
        super().__init__(name, node_ids)
        self._sides = list(sides)
        self._routed = routed

    def _set_up(self) -> None:
        for node_id in self._node_ids:
            self._make(node_id)
        for number, side in enumerate(self._sides):
            self._make(side, routes=side == self._routed)
            network = self._network(side)
            for node_id in self._node_ids:
                self._connect(side, node_id, f"eth{number}", network)
                self._in(node_id, "ip", "route", "add", f"{network}.0.0/16", "via", f"{network}.{node_id}.1")

    def address(self, side: str, node_id: int) -> str:
        """A node's address on a side."""
        return f"{self._network(side)}.{node_id}.2"

    def _network(self, side: str) -> str:
        return f"10.{SIDE_FIRST + self._sides.index(side)}"


class Loopback(_Namespaces):
    """A namespace with a loopback address. Packets of ports that are cut go to a link without anything behind it."""

    PLACE: Final = "here"
    _HOLE: Final = "hole"
    _TABLE: Final = "77"

    def __init__(self, name: str) -> None:
        super().__init__(name, ())

    def _set_up(self) -> None:
        here = ["ip", "-n", self.namespace(self.PLACE)]
        self._make(self.PLACE)
        _run(*here, "link", "add", self._HOLE, "type", "veth", "peer", "name", "nowhere")
        for link in (self._HOLE, "nowhere"):
            _run(*here, "link", "set", link, "up")
        for name in ("all", self._HOLE):
            self._in(self.PLACE, "sysctl", "-qw", f"net.ipv4.conf.{name}.route_localnet=1")
        _run(*here, "route", "add", "default", "dev", self._HOLE, "table", self._TABLE)
        _run(*here, "rule", "add", "pref", "100", "lookup", "local")  # later than the rules of `cut`
        _run(*here, "rule", "del", "pref", "0")

    def cut(self, port: int) -> None:
        """Drops all packets to and from a port: nothing is accepted, and nothing refused."""
        for word in ("dport", "sport"):
            rule = ["rule", "add", "pref", "10", "ipproto", "tcp", word, str(port), "lookup", self._TABLE]
            _run("ip", "-n", self.namespace(self.PLACE), *rule)


def _go_to(namespace: int) -> None:
    try:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "a network namespace cannot be entered")
    finally:
        os.close(namespace)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
