"""The listeners of a broker's file: what they are named, where they are bound, and what is advertised of them."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.cli.errors import Failed
from penstock.client.bootstrap import Address

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FORM = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:/\s]*):(-?[0-9]+)")


class NotServed(Failed):
    """The settings are valid, and this version does not support them."""


class Listener(NamedTuple):
    """One listener: its name, the protocol of that name, and its address. An empty host means every interface."""

    name: str
    protocol: str
    host: str
    port: int
    advertised: Address | None = None
    """None if advertised.listeners is not set."""
    is_advertised: bool = True
    """False if advertised.listeners names other listeners only."""


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


def all_listeners(settings: Mapping[str, str]) -> list[Listener]:
    """All listeners, without what is advertised of them."""
    return parse_listeners(settings.get("listeners", "PLAINTEXT://localhost:9092"), protocols_of(settings))


def client_listeners(settings: Mapping[str, str]) -> list[Listener]:
    """The listeners for clients and brokers, with what is advertised of each; raises Failed if one is not served."""
    controllers = controller_names(settings)
    found = [plaintext(each) for each in all_listeners(settings) if each.name not in controllers]
    if not found:
        raise Failed("listeners has none for clients: add PLAINTEXT://host:port, or set process.roles=controller")
    text = settings.get("advertised.listeners", "").strip()
    if not text:
        return found
    advertised = {each.name: Address(each.host, each.port) for each in parse_listeners(text, protocols_of(settings))}
    if not any(each.name in advertised for each in found):
        names_found = ", ".join(each.name for each in found)
        raise Failed(f"advertised.listeners names none of the listeners for clients: add one of {names_found}")
    return [
        each._replace(advertised=advertised.get(each.name), is_advertised=each.name in advertised) for each in found
    ]


def inter_broker_listener(settings: Mapping[str, str], listeners: Sequence[Listener]) -> str:
    """The name of the listener through which brokers reach each other; raises Failed if that is not decided.

    As in Kafka it is one that is advertised, and PLAINTEXT if nothing is set; unlike there, one listener needs no name.
    """
    name, protocol = settings.get("inter.broker.listener.name"), settings.get("security.inter.broker.protocol")
    if name and protocol:
        raise Failed(
            "inter.broker.listener.name and security.inter.broker.protocol are both set, and the name says it all: "
            "remove the protocol"
        )
    if protocol and protocol.strip().upper() != "PLAINTEXT":
        raise NotServed(f"security.inter.broker.protocol is {protocol}, which is not served yet: remove it")
    known = [each.name for each in listeners if each.is_advertised]
    if not name and not protocol and len(known) == 1:
        return known[0]
    wanted = (name or protocol or "PLAINTEXT").strip().upper()
    if wanted in known:
        return wanted
    among = ", ".join(known)
    if name:
        raise Failed(f"inter.broker.listener.name is {name}, which is none of the listeners {among} for clients")
    if protocol:
        raise Failed(
            f"security.inter.broker.protocol is {protocol}, and none of the listeners {among} is named so: "
            "set inter.broker.listener.name instead"
        )
    raise Failed(
        f"nothing says which of the listeners {among} brokers use to reach each other: set inter.broker.listener.name"
    )


def plaintext(listener: Listener) -> Listener:
    """The listener, if its protocol is served; raises NotServed otherwise."""
    if listener.protocol != "PLAINTEXT":
        raise NotServed(not_served(listener.name, listener.protocol))
    return listener


def controller_names(settings: Mapping[str, str]) -> list[str]:
    """The names of listeners that belong to the controller."""
    return names(settings.get("controller.listener.names")) or ["CONTROLLER"]


def names(text: str | None) -> list[str]:
    """The names in a comma-separated list."""
    return [each.strip().upper() for each in (text or "").split(",") if each.strip()]
