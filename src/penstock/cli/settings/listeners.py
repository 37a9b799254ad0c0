"""Parses `listeners` and `advertised.listeners` of a broker's file."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.cli.errors import Failed

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FORM = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:/\s]*):(-?[0-9]+)")


class Listener(NamedTuple):
    """One listener: its name, the protocol of that name, and its address. An empty host means every interface."""

    name: str
    protocol: str
    host: str
    port: int


def not_served(name: str, protocol: str) -> str:
    """The sentence that refuses a listener that this version cannot serve."""
    return (
        f"listener {name} is {protocol}, which is not served yet: use PLAINTEXT, by its name or in "
        "listener.security.protocol.map, and keep it on a network that you trust"
    )


def parse_listeners(text: str, protocols: Mapping[str, str]) -> list[Listener]:
    """The listeners of a text; raises Failed for a part that is not a listener."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _FORM.fullmatch(part)
        if match is None:
            raise Failed(f"{part!r} is no listener: write NAME://host:port, PLAINTEXT://localhost:9092 for example")
        name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
        if not 0 <= port < 65536:
            raise Failed(f"the port of listener {part!r} is not between 0 and 65535")
        protocol = protocols.get(name)
        if protocol is None:
            raise Failed(
                f"nobody says which protocol listener {name} speaks: add {name}:PLAINTEXT (or SSL, …) to "
                "listener.security.protocol.map"
            )
        found.append(Listener(name, protocol, host, port))
    return found


def parse_protocol_map(text: str | None) -> dict[str, str]:
    """Protocols by listener name; a listener that is named like a protocol needs no entry."""
    found = {protocol: protocol for protocol in PROTOCOLS}
    for part in filter(None, (each.strip() for each in (text or "").split(","))):
        name, _, protocol = part.partition(":")
        if protocol.strip().upper() not in PROTOCOLS:
            raise Failed(f"listener.security.protocol.map: {part!r} is not NAME:PROTOCOL with one of {PROTOCOLS}")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def protocols_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Protocols by listener name; without a protocol map, the controllers' listeners are plaintext, as in Kafka."""
    text = settings.get("listener.security.protocol.map")
    found = parse_protocol_map(text)
    if text is None:
        found |= dict.fromkeys(controller_names(settings), "PLAINTEXT")
    return found


def controller_names(settings: Mapping[str, str]) -> list[str]:
    """The names of listeners that belong to the controller."""
    return names(settings.get("controller.listener.names")) or ["CONTROLLER"]


def names(text: str | None) -> list[str]:
    """The names in a comma-separated list."""
    return [each.strip().upper() for each in (text or "").split(",") if each.strip()]
