"""Bootstrap addresses: how they are written, and the one rule that finds a cluster.

The first of these that is given decides: an address; a context by its name, from the command line or PENSTOCK_CONTEXT;
PENSTOCK_BOOTSTRAP; the nearest `.penstock/endpoint` upwards from the current directory; the context in use;
localhost:9092. The endpoint file holds the addresses of `penstock dev` or `penstock sandbox`, separated by commas, on
the first line that is neither empty nor a comment (#).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from penstock.client.contexts import BOOTSTRAP, Contexts

PORT_DEFAULT = 9092
VARIABLE = "PENSTOCK_BOOTSTRAP"
CONTEXT_VARIABLE = "PENSTOCK_CONTEXT"
ENDPOINT_FILE = Path(".penstock") / "endpoint"
ADDRESS_DEFAULT = f"localhost:{PORT_DEFAULT}"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parses "host", "host:port" or "[::1]:port"; raises ValueError if it is none of these."""
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
    """Parses a list or a comma-separated string of addresses, without duplicates."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    found = dict.fromkeys(parse_address(part) for part in parts if part.strip())
    if not found:
        raise ValueError("no bootstrap address: give at least one host:port")
    return tuple(found)


# --- the rule ---------------------------------------------------------------------------------------------------------


class Rule(Enum):
    """The rules, in their order."""

    ADDRESS = "address"
    CONTEXT = "context"
    VARIABLE = "variable"
    FOLDER = "folder"
    CONTEXT_IN_USE = "context in use"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """The addresses of a cluster, the client properties that go with them, and what found it."""

    bootstrap: str
    rule: Rule
    source: str
    """The option, variable, file or context that names the cluster."""
    properties: Mapping[str, str] = field(default_factory=dict)
    rival: str | None = None
    """The context in use, if the rule is FOLDER and the context is another cluster."""
    folder: Path | None = None
    """The directory above `.penstock`, if the rule is FOLDER."""

    @property
    def sentence(self) -> str:
        """Names the cluster and the rule that found it."""
        return f"Cluster {self.bootstrap}, {self.source}."


def find_cluster(
    bootstrap: str | None = None,
    *,
    option: str = "-b",
    context: str | None = None,
    directory: Path | None = None,
    contexts: Contexts | None = None,
) -> FoundCluster:
    """Applies the rule; `bootstrap` is the address that `option` gives. Raises ValueError for an unknown context."""
    if bootstrap is not None:
        return FoundCluster(bootstrap, Rule.ADDRESS, f"given by {option}")
    contexts = contexts or Contexts()
    if context is not None:
        return _of_context(contexts, context, Rule.CONTEXT, f"the context {context}, given by --context")
    if named := os.environ.get(CONTEXT_VARIABLE, "").strip():
        return _of_context(contexts, named, Rule.CONTEXT, f"the context {named}, given by {CONTEXT_VARIABLE}")
    if given := os.environ.get(VARIABLE, "").strip():
        return FoundCluster(given, Rule.VARIABLE, f"given by {VARIABLE}")
    in_use = contexts.in_use()
    nearest = nearest_endpoint(directory)
    if nearest is not None:
        path, text = nearest
        is_rival = in_use is not None and not _is_at(contexts, in_use, text)
        folder = path.parent.parent
        return FoundCluster(text, Rule.FOLDER, f"found in {path}", {}, in_use if is_rival else None, folder)
    if in_use is not None:
        return _of_context(contexts, in_use, Rule.CONTEXT_IN_USE, f"the context in use, {in_use}")
    return FoundCluster(ADDRESS_DEFAULT, Rule.DEFAULT, "the default, because nothing names another")


def default_bootstrap(directory: Path | None = None) -> str:
    """The addresses for a client without any; raises ValueError if they take more than an address to connect."""
    found = find_cluster(directory=directory)
    if extra := [name for name in found.properties if name.startswith(("security.", "sasl.", "ssl."))]:
        raise ValueError(
            f"{found.source}, connects with {extra[0]}, which is not read here: give the address and the login yourself"
        )
    return found.bootstrap


def nearest_endpoint(directory: Path | None = None) -> tuple[Path, str] | None:
    """The nearest endpoint file upwards from the directory, and its addresses."""
    start = (directory or Path.cwd()).absolute()
    for place in (start, *start.parents):
        if (text := read_endpoint(place)) is not None:
            return place / ENDPOINT_FILE, text
    return None


def read_endpoint(directory: Path) -> str | None:
    """The addresses in the endpoint file of this directory, if there are any."""
    try:
        lines = (directory / ENDPOINT_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    texts = (line.strip() for line in lines)
    return next((text for text in texts if text and not text.startswith("#")), None)


def write_endpoint(directory: Path, addresses: str) -> None:
    """Writes the endpoint file of this directory, where commands that start below it find it."""
    path = directory / ENDPOINT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    ignore = path.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    path.write_text(f"{addresses}\n", encoding="utf-8")


def _of_context(contexts: Contexts, name: str, rule: Rule, source: str) -> FoundCluster:
    properties = contexts.load(name)
    return FoundCluster(properties.pop(BOOTSTRAP).strip(), rule, source, properties)


def _is_at(contexts: Contexts, name: str, addresses: str) -> bool:
    """Whether a context has these addresses; False if its file cannot be used."""
    try:
        return set(parse_addresses(contexts.load(name)[BOOTSTRAP])) == set(parse_addresses(addresses))
    except ValueError:
        return False
