"""Broker addresses as reported to clients.

For this node, advertised.listeners wins. Without it, a client receives the address at which it has just reached this
node, which works from the same machine, from another one and from a container without a setting.
"""

from typing import NamedTuple

from penstock.metadata.image import Broker, Image
from penstock.metadata.records import BrokerEndpoint
from penstock.metadata.settings.layers import BrokerSettings

PLAINTEXT = 0
"""The security protocol of all listeners; there is no other kind."""


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class AdvertisedBroker(NamedTuple):
    """A broker and its address for one client."""

    broker: Broker
    address: Address


def brokers_for(image: Image, settings: BrokerSettings, node_id: int, local: str) -> list[AdvertisedBroker]:
    """Brokers of the image, ordered by id; `local` is the address at which the client reached this node."""
    found = []
    for _, broker in sorted(image.brokers.items()):
        if broker.broker_id == node_id:
            found.append(AdvertisedBroker(broker, advertised(settings, local)))
        elif broker.listeners:
            found.append(AdvertisedBroker(broker, Address(broker.listeners[0].host, broker.listeners[0].port)))
    return found


def endpoints(settings: BrokerSettings, bound: str) -> list[BrokerEndpoint]:
    """Endpoints that a node registers with the controller: the advertised listeners, else the bound address."""
    place = parse_address(bound)
    told = _listeners(settings, "advertised.listeners")
    if not told:
        names = [name for name, address in _listeners(settings, "listeners").items() if address.port == place.port]
        told = {next(iter(names), "PLAINTEXT"): place}
    return [
        BrokerEndpoint(name=name, host=at.host or place.host, port=at.port or place.port, security_protocol=PLAINTEXT)
        for name, at in told.items()
    ]


def advertised(settings: BrokerSettings, local: str) -> Address:
    """Address of this node for a client that reached it at `local`."""
    reached = parse_address(local)
    told = _listeners(settings, "advertised.listeners")
    if not told:
        return reached
    listened = [name for name, address in _listeners(settings, "listeners").items() if address.port == reached.port]
    name = next((name for name in listened if name in told), next(iter(told)))
    return Address(told[name].host or reached.host, told[name].port or reached.port)


def parse_address(text: str) -> Address:
    """Parses host:port. An IPv4-mapped IPv6 address becomes a plain IPv4 address."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]").removeprefix("::ffff:")
    return Address(host, int(port) if port.isdecimal() else 0)


def _listeners(settings: BrokerSettings, setting: str) -> dict[str, Address]:
    """Listeners of a setting by name, without those of the controller."""
    value, hidden = settings.value(setting), settings.value("controller.listener.names") or ()
    listeners = {}
    for entry in value if isinstance(value, tuple) else ():
        name, separator, address = entry.partition("://")
        if separator and not (isinstance(hidden, tuple) and name in hidden):
            listeners[name] = parse_address(address)
    return listeners
