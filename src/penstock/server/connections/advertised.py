"""Addresses of brokers as reported to clients and to other brokers, by listener.

A client receives the addresses of the listener on which its request arrived. For this node, advertised.listeners wins.
Without it, a client receives the address at which it has just reached this node, which works from the same machine,
from another one and from a container without a setting. A broker that has not registered the listener has no address
for the clients of that listener, and answers to them leave it out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.bootstrap import Address
from penstock.metadata.image import Broker, Image
from penstock.metadata.records import BrokerEndpoint
from penstock.server.settings import ListenerSettings

PLAINTEXT = 0
"""The security protocol of all listeners; there is no other kind."""


class AdvertisedBroker(NamedTuple):
    """A broker and its address for one client."""

    broker: Broker
    address: Address


class AdvertisedBrokers:
    """Finds the addresses of brokers for the clients of a listener."""

    def __init__(self, node_id: int, listeners: Iterable[ListenerSettings]) -> None:
        """`listeners` are those of this node."""
        self._node_id = node_id
        self._unnamed = frozenset(each.name for each in listeners if each.advertised is None)
        """Listeners of this node whose clients receive the address at which they have reached it."""

    def of(self, image: Image, listener: str, local: str) -> list[AdvertisedBroker]:
        """Brokers that have the listener, ordered by id; `local` is where the client reached this node."""
        found = []
        for broker_id, broker in sorted(image.brokers.items()):
            address = address_of(broker, listener)
            if address is not None and broker_id == self._node_id and listener in self._unnamed:
                address = parse_address(local)
            if address is not None:
                found.append(AdvertisedBroker(broker, address))
        return found


def address_of(broker: Broker, listener: str) -> Address | None:
    """The address that a broker has registered for a listener; None if it lacks the listener."""
    return address_in(broker.listeners, listener)


def address_in(endpoints: Iterable[BrokerEndpoint], listener: str) -> Address | None:
    """The address of a listener among those of a broker; None if it is not there."""
    for each in endpoints:
        if each.name == listener:
            return Address(each.host, each.port)
    return None


def hidden_from(brokers: Mapping[int, Broker], listener: str) -> frozenset[int]:
    """Ids of the brokers that lack a listener: they do not exist for its clients."""
    return frozenset(broker_id for broker_id, broker in brokers.items() if address_of(broker, listener) is None)


def endpoints(
    listeners: Sequence[ListenerSettings], bound: Sequence[str], inter_broker_listener: str
) -> list[BrokerEndpoint]:
    """Endpoints that a node registers with the controller: the inter-broker listener, then the others.

    `bound` are the addresses that the listeners are bound to. They are registered where none is advertised.
    """
    found = []
    for listener, place in zip(listeners, map(parse_address, bound), strict=True):
        if listener.is_advertised:
            host, port = listener.advertised or place
            endpoint = BrokerEndpoint(
                name=listener.name, host=host, port=port or place.port, security_protocol=PLAINTEXT
            )
            found.append(endpoint)
    return sorted(found, key=lambda each: each.name != inter_broker_listener)


def parse_address(text: str) -> Address:
    """Parses host:port. An IPv4-mapped IPv6 address becomes a plain IPv4 address."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]").removeprefix("::ffff:")
    return Address(host, int(port) if port.isdecimal() else 0)
