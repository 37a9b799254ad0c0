"""A private network: every node in a namespace with its own address, and a router between them that can cut links.

The router cuts one direction: packets that one node sends to another are dropped, and neither node is notified. A
process that wants to connect to the nodes enters the router (`Network.enter`).
"""

import ctypes
import os
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

CLONE_NEWNET: Final = 0x40000000
PREFIX: Final = "10.77"


class Network:
    """Namespaces `<name>-router`, `<name>-1`, `<name>-2` and so on; they are deleted at the end."""

    def __init__(self, name: str, node_ids: Iterable[int]) -> None:
        self._name = name
        self._node_ids = list(node_ids)
        self._router = f"{name}-router"
        self._cuts: set[tuple[int, int]] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._make(self._router)
        self._in(self._router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for node_id in self._node_ids:
            self._join(node_id)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def address(self, node_id: int) -> str:
        """A node's address."""
        return f"{PREFIX}.{node_id}.2"

    def prefix(self, node_id: int) -> list[str]:
        """The command prefix that runs a command in a node's namespace."""
        return ["ip", "netns", "exec", f"{self._name}-{node_id}"]

    def enter(self) -> None:
        """Moves this thread, and processes it starts from now on, into the router until the end."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._stack.callback(_go_to, before)
        _go_to(os.open(f"/run/netns/{self._router}", os.O_RDONLY))

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
        self._in(self._router, "ip", "rule", word, *way, "blackhole")

    # --- setup

    def _make(self, namespace: str) -> None:
        _run("ip", "netns", "add", namespace)
        self._stack.callback(_run, "ip", "netns", "del", namespace)
        self._in(namespace, "ip", "link", "set", "lo", "up")

    def _join(self, node_id: int) -> None:
        own = f"{self._name}-{node_id}"
        self._make(own)
        outside = f"n{node_id}"
        _run("ip", "-n", self._router, "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", own)
        for namespace, link, host in ((self._router, outside, 1), (own, "eth0", 2)):
            _run("ip", "-n", namespace, "addr", "add", f"{PREFIX}.{node_id}.{host}/24", "dev", link)
            _run("ip", "-n", namespace, "link", "set", link, "up")
        _run("ip", "-n", own, "route", "add", "default", "via", f"{PREFIX}.{node_id}.1")

    def _in(self, namespace: str, *command: str) -> None:
        _run("ip", "netns", "exec", namespace, *command)


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
