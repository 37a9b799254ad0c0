"""Addresses of brokers by listener: what is registered, and what the clients of a listener receive."""

import pytest

from penstock.client.bootstrap import Address
from penstock.metadata.image import Broker, Image
from penstock.metadata.records import BrokerEndpoint
from penstock.server.connections.advertised import AdvertisedBrokers, endpoints, hidden_from
from penstock.server.settings import ListenerSettings

OWN = 1


def at(name: str, host: str, port: int) -> BrokerEndpoint:
    return BrokerEndpoint(name=name, host=host, port=port, security_protocol=0)


def an_image(**brokers: list[BrokerEndpoint]) -> Image:
    known = {int(each[1:]): tuple(listeners) for each, listeners in brokers.items()}
    return Image(brokers={number: Broker(number, 0, bytes(16), each) for number, each in known.items()})


def told(
    image: Image, *listeners: ListenerSettings, listener: str = "OUT", local: str = "10.0.0.5:9092"
) -> dict[int, Address]:
    found = AdvertisedBrokers(OWN, listeners).of(image, listener, local)
    return {each.broker.broker_id: each.address for each in found}


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("172.17.0.2:9092", ("172.17.0.2", 9092)),
        ("[fe80::1]:9092", ("fe80::1", 9092)),
        ("::1:9092", ("::1", 9092)),
        ("::ffff:10.0.0.5:9092", ("10.0.0.5", 9092)),
    ],
)
def test_without_advertised_listeners_a_client_receives_the_address_that_it_reached(
    local: str, expected: tuple[str, int]
) -> None:
    image = an_image(b1=[at("OUT", "0.0.0.0", 9092)], b2=[at("OUT", "b", 9092)])
    assert told(image, ListenerSettings("OUT"), local=local) == {1: expected, 2: ("b", 9092)}


def test_each_listener_has_its_own_addresses() -> None:
    listeners = ListenerSettings("IN"), ListenerSettings("OUT", advertised=Address("broker.example", 19092))
    ours = [at("IN", "10.0.0.1", 9092), at("OUT", "broker.example", 19092)]
    image = an_image(b1=ours, b2=[at("OUT", "::2", 29092), at("IN", "10.0.0.2", 9092)])
    assert told(image, *listeners) == {1: ("broker.example", 19092), 2: ("::2", 29092)}
    assert told(image, *listeners, listener="IN", local="10.0.0.1:9092") == {
        1: ("10.0.0.1", 9092),
        2: ("10.0.0.2", 9092),
    }


def test_a_broker_that_lacks_the_listener_is_left_out() -> None:
    image = an_image(b1=[at("IN", "a", 1)], b2=[at("IN", "b", 2), at("OUT", "b", 3)], b3=[])
    own = ListenerSettings("OUT", is_advertised=False)
    assert told(image, own) == {2: ("b", 3)}, "not even this node, if it does not advertise the listener"
    assert hidden_from(image.brokers, "OUT") == {1, 3}
    assert hidden_from(image.brokers, "IN") == {3}
    assert told(image, listener="") == {}


@pytest.mark.parametrize(
    ("listeners", "registered"),
    [
        ([ListenerSettings()], [("PLAINTEXT", "127.0.0.1", 1000)]),
        ([ListenerSettings("IN", advertised=Address("a", 0))], [("IN", "a", 1000)]),
        (
            [ListenerSettings("OUT", advertised=Address("b", 2)), ListenerSettings("IN")],
            [("IN", "127.0.0.1", 1001), ("OUT", "b", 2)],
        ),
        (
            [ListenerSettings("A"), ListenerSettings("B", is_advertised=False), ListenerSettings("C")],
            [("A", "127.0.0.1", 1000), ("C", "127.0.0.1", 1002)],
        ),
    ],
)
def test_the_inter_broker_listener_is_registered_first(
    listeners: list[ListenerSettings], registered: list[tuple[str, str, int]]
) -> None:
    bound = [f"127.0.0.1:{1000 + number}" for number in range(len(listeners))]
    found = endpoints(listeners, bound, "IN")
    assert [(each.name, each.host, each.port) for each in found] == registered
