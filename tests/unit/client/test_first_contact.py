"""A client that reaches no broker says so within `connect_timeout_ms`, in a sentence with the address and the cause."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from penstock.client import Client, ClientPorts, LoginFailed, NotABroker, Unreachable
from penstock.client.retry import Retry
from penstock.simulator.node import Ports
from tests.unit.client.brokers import PORT, Brokers, play

T = TypeVar("T")
SLACK_S = 0.3


def timed(brokers: Brokers, story: Callable[[Client], Awaitable[Any]], *names: str, **options: Any) -> float:
    """Seconds of virtual time that a story took."""

    async def main(ports: ClientPorts) -> float:
        began_s = brokers.world.loop.time()
        async with Client(names or brokers.names, ports=ports, **options) as client:
            await story(client)
            return brokers.world.loop.time() - began_s

    return play(brokers, main)


@pytest.mark.parametrize("limit_ms", [None, 1_000])
def test_a_broker_that_is_down(limit_ms: int | None) -> None:
    brokers = Brokers()

    async def story(client: Client) -> None:
        brokers.world.kill("broker-0")
        with pytest.raises(Unreachable, match=r"^no connection to broker-0:9092: nothing listens there: is the broker"):
            await client.topics()

    took_s = timed(brokers, story, connect_timeout_ms=limit_ms)
    assert took_s <= (limit_ms or 5_000) / 1000 + SLACK_S


def test_every_call_says_so_in_time() -> None:
    brokers = Brokers()
    calls: list[Callable[[Client], Awaitable[Any]]] = [
        lambda client: client.topics(),
        lambda client: client.create_topic("t"),
        lambda client: client.publish("t", "x"),
        lambda client: anext(aiter(client.consume("t"))),
        lambda client: anext(aiter(client.consume("t", group="g"))),
        lambda client: client.committed("t", "g"),
        lambda client: client.admin.describe_cluster(),
        lambda client: client.admin.list_groups(),
    ]

    async def story(client: Client) -> None:
        brokers.world.kill("broker-0")
        for call in calls:
            began_s = brokers.world.loop.time()
            with pytest.raises(Unreachable, match="nothing listens there"):
                await call(client)
            assert brokers.world.loop.time() - began_s <= 2 + SLACK_S

    timed(brokers, story, connect_timeout_ms=2_000)


def test_a_firewall() -> None:
    brokers = Brokers()

    async def story(client: Client) -> None:
        brokers.world.network.host("broker-0").is_blackhole = True
        with pytest.raises(Unreachable, match="no answer within 5000 ms: is the address right, and does a firewall"):
            await client.topics()

    assert timed(brokers, story) <= 5 + SLACK_S


def test_several_addresses_of_which_none_answers_take_no_longer() -> None:
    brokers = Brokers(3)

    async def story(client: Client) -> None:
        for name in brokers.names:
            brokers.world.network.host(name).is_blackhole = True
        with pytest.raises(Unreachable) as error:
            await client.topics()
        assert all(f"no connection to {name}:9092: no answer" in str(error.value) for name in brokers.names)

    assert timed(brokers, story) <= 5 + SLACK_S


def test_one_of_several_addresses_answers() -> None:
    brokers = Brokers(3)

    async def story(client: Client) -> None:
        for name in brokers.names[:2]:
            brokers.world.network.host(name).is_blackhole = True
        assert await client.topics() == []

    assert timed(brokers, story) <= 5


def test_a_server_that_says_nothing() -> None:
    brokers = Brokers(0)

    async def silent(ports: Ports) -> None:
        listener = await ports.network.listen("", PORT)
        kept = []
        while True:
            kept.append(await listener.accept())

    async def story(client: Client) -> None:
        brokers.world.add("silent", silent)
        brokers.world.start("silent")
        with pytest.raises(Unreachable, match="took the connection but did not answer within 5000 ms: it may want TLS"):
            await client.topics()

    assert timed(brokers, story, "silent") <= 5 + SLACK_S


def test_a_broker_that_starts_meanwhile_is_reached() -> None:
    brokers = Brokers()

    async def story(client: Client) -> None:
        brokers.world.kill("broker-0")
        asyncio.get_running_loop().call_later(2, brokers.world.start, "broker-0")
        assert await client.topics() == []

    assert timed(brokers, story) <= 5


def test_a_program_may_wait_longer_for_its_brokers() -> None:
    brokers = Brokers()

    async def story(client: Client) -> None:
        brokers.world.kill("broker-0")
        asyncio.get_running_loop().call_later(20, brokers.world.start, "broker-0")
        assert await client.topics() == []

    assert timed(brokers, story, first_contact_ms=30_000) >= 20


def test_once_reached_a_cluster_may_be_away_for_as_long_as_a_call() -> None:
    brokers = Brokers()

    async def story(client: Client) -> None:
        await client.topics()
        brokers.world.kill("broker-0")
        asyncio.get_running_loop().call_later(20, brokers.world.start, "broker-0")
        assert await client.topics() == []

    assert timed(brokers, story) >= 20


def test_a_retry_has_its_first_limit_only_until_it_is_over() -> None:
    brokers = Brokers()

    async def main(ports: ClientPorts) -> None:
        is_over = False
        retry = Retry(ports.clock, ports.entropy, 10_000)
        retry.limit_first(1_000, lambda: is_over)
        for _ in range(3):
            await retry.after(Unreachable("away"))
        await asyncio.sleep(0.6)
        with pytest.raises(Unreachable):
            await retry.after(Unreachable("away"))
        assert retry.spent_ms <= 1_000
        is_over = True
        await retry.after(Unreachable("away"))

    play(brokers, main)


# --- on this machine


@contextmanager
def serving(answer: bytes) -> Iterator[str]:
    """A server that answers any bytes with the same ones."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(answer)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is an HTTP server, not a Kafka broker: is the port right?"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS, but this client speaks in the clear: turn TLS on"),
    ],
)
def test_another_server_is_named_at_once(answer: bytes, sentence: str) -> None:
    with serving(answer) as address, Client.blocking(address) as client:
        with pytest.raises(NotABroker, match=sentence) as error:
            client.topics()
        assert address in str(error.value)


def test_tls_where_there_is_none() -> None:
    tls = ssl.create_default_context()
    with (
        serving(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        Client.blocking(address, tls=tls) as client,
        pytest.raises(NotABroker, match="does not speak TLS: use another port, or turn TLS off"),
    ):
        client.topics()


def test_tls_where_the_server_ends_the_handshake() -> None:
    tls = ssl.create_default_context()
    with (
        serving(b"") as address,
        Client.blocking(address, tls=tls, connect_timeout_ms=300) as client,
        pytest.raises(Unreachable, match="it closed the connection during the TLS handshake: use a port with TLS, or"),
    ):
        client.topics()


def test_a_login_where_there_is_none() -> None:
    async def story(client: Client) -> None:
        with pytest.raises(
            LoginFailed, match=r"^broker-0:9092 offers no login \(SASL\): leave the credentials out, or"
        ):
            await client.topics()

    assert timed(Brokers(), story, sasl=("PLAIN", "alice", "secret")) < 1


def test_a_name_that_does_not_exist() -> None:
    with (
        Client.blocking("no-such-host.invalid:9092", connect_timeout_ms=300) as client,
        pytest.raises(Unreachable, match=r"no connection to no-such-host\.invalid:9092: the name cannot be"),
    ):
        client.topics()


def test_a_name_server_that_does_not_answer_delays_neither_the_error_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    real = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        if not options["flags"] & socket.AI_NUMERICHOST:
            released.wait(100)
        return real(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    began_s = time.monotonic()
    try:
        with (
            Client.blocking("somewhere.invalid:9092", connect_timeout_ms=200) as client,
            pytest.raises(Unreachable, match="no answer within 200 ms"),
        ):
            client.topics()
        assert time.monotonic() - began_s < 60
    finally:
        released.set()
