"""Where the cluster is: addresses that a caller gives, and where to look when there are none.

The endpoint file holds what `penstock dev` listens on: addresses separated by commas, on the first line that is
neither empty nor a comment (#).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PORT_DEFAULT = 9092
VARIABLE = "PENSTOCK_BOOTSTRAP"
ENDPOINT_FILE = Path(".penstock") / "endpoint"
ADDRESS_DEFAULT = f"localhost:{PORT_DEFAULT}"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Reads "host", "host:port", "[::1]:port"; ValueError says what is wrong."""
    trimmed = text.strip()
    host, port = trimmed, ""
    if trimmed.startswith("["):
        host, bracket, rest = trimmed[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address: expected [host]:port")
        port = rest[1:]
    elif trimmed.count(":") == 1:
        host, _, port = trimmed.partition(":")
    if not host or any(letter in host for letter in "/ \t"):
        raise ValueError(f"{text!r} is not an address: expected host:port, without a scheme")
    if not port:
        return Address(host, PORT_DEFAULT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address: the port is a number from 1 to 65535")
    return Address(host, int(port))


def parse_addresses(bootstrap: str | Sequence[str]) -> tuple[Address, ...]:
    """Addresses from a list, or from one text with commas between them; each once."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    found = dict.fromkeys(parse_address(part) for part in parts if part.strip())
    if not found:
        raise ValueError("no bootstrap address: give at least one host:port")
    return tuple(found)


def default_bootstrap(directory: Path | None = None) -> str:
    """PENSTOCK_BOOTSTRAP, else the nearest `.penstock/endpoint` upwards from the directory, else localhost:9092."""
    if given := os.environ.get(VARIABLE, "").strip():
        return given
    start = (directory or Path.cwd()).absolute()
    for place in (start, *start.parents):
        try:
            lines = (place / ENDPOINT_FILE).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            if (text := line.strip()) and not text.startswith("#"):
                return text
    return ADDRESS_DEFAULT
