"""Finds the process that listens on a port of this machine; processes of other users remain unnamed."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LISTENS = "0A"


class Owner(NamedTuple):
    """A process that listens; without a pid, one that we may not inspect."""

    pid: int | None
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid is not None else self.name


def is_here(host: str) -> bool:
    """Whether a name or an address means this machine: whether a socket can be bound to it."""
    try:
        places = socket.getaddrinfo(host or "localhost", 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, place in places:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(place)
            except OSError:
                continue
            return True
    return False


def owner_of(port: int, proc: Path = Path("/proc")) -> Owner | None:
    """The process that listens on a port; None if there is none, or no /proc."""
    inodes = set(_inodes(port, proc))
    if not inodes:
        return None
    for entry in proc.iterdir():
        if entry.name.isdecimal() and _holds(entry, inodes):
            return Owner(int(entry.name), _name(entry))
    return Owner(None, "another user's program")


def descriptors_of(pid: int, proc: Path = Path("/proc")) -> int | None:
    """The number of files that a process may open; None if it is unknown or unlimited."""
    try:
        limits = (proc / str(pid) / "limits").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^Max open files +([0-9]+)", limits, re.MULTILINE)
    return int(found[1]) if found else None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{words[9]}]"


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        return any(_target(each) in inodes for each in (process / "fd").iterdir())
    except OSError:
        return False


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return None


def _name(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return "a program"
    return " ".join([Path(words[0]).name, *words[1:3]]) if words[0] else "a program"
