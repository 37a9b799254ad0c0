"""One connection: API versions, order, time-outs, and errors for servers that are no brokers."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from penstock.client.connection.connection import BrokerConnection, open_connection
from penstock.client.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    NotABroker,
    TimedOut,
    Unreachable,
    Unsupported,
)
from penstock.client.ports import ClientPorts, host_ports
from penstock.model.ports import Connection
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from penstock.wire.api import Api
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.client.brokers import PORT, Brokers, Fault, play

AN_ID = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


async def connect(ports: ClientPorts, timeout_ms: int = 1000) -> BrokerConnection:
    return await open_connection(ports.network, "broker-0", PORT, address="broker-0:9092", timeout_ms=timeout_ms)


def test_it_speaks_the_newest_version_that_both_know() -> None:
    brokers = Brokers()
    brokers.newest = {Api.METADATA: 7}

    async def story(ports: ClientPorts) -> None:
        connection = await connect(ports)
        await connection.ask(MetadataRequest(topics=()), MetadataResponse)
        await connection.ask(AN_ID, InitProducerIdResponse)
        with pytest.raises(Unsupported, match="no version at all of DescribeGroups"):
            connection.version_for(DescribeGroupsRequest)
        with pytest.raises(Unsupported, match="versions 4 to 18 of Fetch; this client speaks 4 to 3"):
            connection.version_for(FetchRequest, most=3)
        await connection.close()

    play(brokers, story)
    versions = [(api, version) for _, api, version in brokers.seen]
    # The newest version of InitProducerId is not stable yet, so it is not used although it is offered.
    assert versions == [(Api.API_VERSIONS, 4), (Api.METADATA, 7), (Api.INIT_PRODUCER_ID, 5)]


@pytest.mark.parametrize("newest", [0, 2, 3])
def test_an_older_broker_is_asked_again_in_its_words(newest: int) -> None:
    brokers = Brokers()
    brokers.newest = {Api.API_VERSIONS: newest}

    async def story(ports: ClientPorts) -> int:
        connection = await connect(ports)
        await connection.close()
        return connection.version_for(ApiVersionsRequest)

    assert play(brokers, story) == newest
    assert [version for _, _, version in brokers.seen] == [4, newest]


def test_answers_come_in_order_to_whoever_asked() -> None:
    async def story(ports: ClientPorts) -> list[int]:
        connection = await connect(ports)
        asked = [connection.begin(AN_ID, InitProducerIdResponse) for _ in range(20)]
        assert connection.awaited == 20
        answers = await asyncio.gather(*asked)
        await connection.close()
        return [answer.producer_id for answer in answers]

    assert play(Brokers(), story) == list(range(1001, 1021))


def test_who_goes_away_leaves_the_others_their_answers() -> None:
    async def story(ports: ClientPorts) -> list[int]:
        connection = await connect(ports)
        first, second, third = (connection.begin(AN_ID, InitProducerIdResponse) for _ in range(3))
        second.cancel()
        answers = [(await first).producer_id, (await third).producer_id]
        await connection.close()
        return answers

    assert play(Brokers(), story) == [1001, 1003]


def test_an_answer_that_is_left_out_gives_nobody_another_s() -> None:
    brokers = Brokers()
    brokers.fail(Api.INIT_PRODUCER_ID, Fault.SILENCE)

    async def story(ports: ClientPorts) -> None:
        connection = await connect(ports)
        asked = [connection.begin(AN_ID, InitProducerIdResponse) for _ in range(2)]
        for each in asked:
            with pytest.raises(NotABroker, match="answer 3 where 2 was expected"):
                await each

    play(brokers, story)


def test_the_one_behind_a_lost_answer_is_lost_too() -> None:
    async def story(ports: ClientPorts) -> float:
        connection = await connect(ports)
        before = asyncio.get_running_loop().time()
        slow = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=())
        first = connection.begin(slow, FetchResponse, timeout_ms=500)
        second = connection.begin(AN_ID, InitProducerIdResponse, timeout_ms=60_000)
        with pytest.raises(TimedOut, match="did not answer Fetch within 500 ms"):
            await first
        with pytest.raises(ConnectionLost, match="did not answer Fetch"):
            await second
        assert connection.is_closed
        with pytest.raises(ConnectionLost):
            connection.begin(AN_ID, InitProducerIdResponse)
        return asyncio.get_running_loop().time() - before

    assert play(Brokers(), story) == pytest.approx(0.5, abs=0.05)


def test_all_who_wait_hear_that_the_broker_hung_up() -> None:
    brokers = Brokers()
    brokers.fail(Api.INIT_PRODUCER_ID, None, Fault.CLOSE)

    async def story(ports: ClientPorts) -> list[type[BaseException]]:
        connection = await connect(ports)
        asked = [connection.begin(AN_ID, InitProducerIdResponse) for _ in range(3)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert connection.is_closed
        return [type(result) for result in results if isinstance(result, BaseException)]

    assert play(brokers, story) == [ConnectionLost, ConnectionLost]


def test_a_closed_connection_says_so() -> None:
    async def story(ports: ClientPorts) -> None:
        connection = await connect(ports)
        waiting = connection.begin(FetchRequest(max_wait_ms=9999, min_bytes=1, topics=()), FetchResponse)
        await connection.close()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            connection.begin(AN_ID, InitProducerIdResponse)

    play(Brokers(), story)


def test_a_retired_connection_ends_with_its_last_answer() -> None:
    async def story(ports: ClientPorts) -> None:
        connection = await connect(ports)
        asked = [connection.begin(AN_ID, InitProducerIdResponse) for _ in range(2)]
        connection.close_when_idle()
        assert not connection.is_closed
        await asyncio.gather(*asked)
        assert connection.is_closed

    play(Brokers(), story)


def test_a_long_frame_comes_through() -> None:
    brokers = Brokers()
    brokers.add_topic("t", 50_000)

    async def story(ports: ClientPorts) -> int:
        connection = await connect(ports, timeout_ms=60_000)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        (topic,) = (await connection.ask(asked, MetadataResponse)).topics
        await connection.close()
        return len(topic.partitions)

    assert play(brokers, story) == 50_000


# --- servers that are no brokers


def meet(foreign_server: Callable[[Connection], Awaitable[None]], timeout_ms: int = 3000) -> ClientError:
    """Returns the client's error for a server that runs `foreign_server`."""
    met: list[ClientError] = []

    async def listen(ports: Ports) -> None:
        listener = await ports.network.listen("", PORT)
        await foreign_server(await listener.accept())
        await asyncio.sleep(100)

    async def client(ports: Ports) -> None:
        try:
            await open_connection(
                ports.network, "foreign_server", PORT, address="foreign_server:9092", connect_timeout_ms=timeout_ms
            )
        except ClientError as error:
            met.append(error)

    with World(1) as world:
        world.add("foreign_server", listen)
        world.start("foreign_server")
        world.add("client", client)
        world.start("client")
        world.run(20)
    (error,) = met
    return error


def saying(words: bytes) -> Callable[[Connection], Awaitable[None]]:
    async def foreign_server(connection: Connection) -> None:
        await connection.receive_into(memoryview(bytearray(1000)))
        await connection.send([words])

    return foreign_server


@pytest.mark.parametrize(
    ("words", "story"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS, but this client speaks in the clear"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is an HTTP server, not a Kafka broker"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is an SSH server"),
        (b"\xff\xff\xff\xff\x00", "does not speak Kafka's protocol .*it began with ff ff ff ff 00"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x09\x00\x00", "answer 9 where 1 was expected"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "its answer to ApiVersions cannot be read"),
        (b"\x00\x00\x00\x02\x00\x00", "answer None where 1 was expected"),
    ],
)
def test_other_protocols_are_recognised(words: bytes, story: str) -> None:
    error = meet(saying(words))
    assert isinstance(error, NotABroker)
    with pytest.raises(NotABroker, match=story):
        raise error
    assert not error.is_retriable


def test_who_hangs_up_at_once_may_want_tls() -> None:
    async def foreign_server(connection: Connection) -> None:
        connection.close()

    error = meet(foreign_server)
    assert isinstance(error, ConnectionLost)
    assert "closed the connection at once: it may want TLS" in str(error)


def test_who_hangs_up_on_the_first_request_may_want_a_login() -> None:
    brokers = Brokers()
    brokers.fail(Api.INIT_PRODUCER_ID, Fault.CLOSE)

    async def story(ports: ClientPorts) -> None:
        connection = await connect(ports)
        with pytest.raises(ConnectionLost, match="at the first request: it may want a login"):
            await connection.ask(AN_ID, InitProducerIdResponse)

    play(brokers, story)


def test_who_says_nothing_is_not_waited_for() -> None:
    async def foreign_server(connection: Connection) -> None:
        await connection.receive_into(memoryview(bytearray(1000)))

    error = meet(foreign_server)
    assert isinstance(error, TimedOut)
    assert "took the connection but did not answer within 3000 ms" in str(error)


def test_nobody_there_is_told_apart_from_no_such_name() -> None:
    async def try_it(host: str, port: int) -> None:
        ports = host_ports()
        try:
            await open_connection(ports.network, host, port, address=f"{host}:{port}")
        finally:
            ports.close()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(Unreachable, match="nothing listens there: is the broker running"):
            asyncio.run(try_it("127.0.0.1", port))
    with pytest.raises(Unreachable, match="cannot be resolved: is it spelled right"):
        asyncio.run(try_it("no-such-host.invalid", 9092))


def test_a_firewall_is_not_waited_for() -> None:
    async def story(ports: ClientPorts) -> None:
        brokers.world.network.host("broker-0").is_blackhole = True
        with pytest.raises(Unreachable, match="no answer within 1500 ms"):
            await open_connection(ports.network, "broker-0", PORT, address="broker-0:9092", connect_timeout_ms=1500)

    brokers = Brokers()
    play(brokers, story)
