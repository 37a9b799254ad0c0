"""TLS connections carry the same bytes, and only to trusted peers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.host.files import HostDisk
from penstock.host.sockets import HostConnection, HostNetwork
from penstock.host.tls import TlsConnection, TlsNetwork
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import FileSlice
from tests.certificates import Authority

LIMIT_S = 20


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await story()

    asyncio.run(main())


@asynccontextmanager
async def served(serve: Callable[[HostConnection], Awaitable[None]]) -> AsyncIterator[tuple[HostNetwork, int]]:
    """Listens on a port and serves the first connection."""
    workers = ThreadWorkers(1)
    network = HostNetwork(workers)
    listener = await network.listen("127.0.0.1", 0)

    async def accept() -> None:
        connection = await listener.accept()
        try:
            await serve(connection)
        finally:
            connection.close()

    serving = asyncio.get_running_loop().create_task(accept())
    try:
        yield network, int(listener.address.rpartition(":")[2])
        await serving
    finally:
        serving.cancel()
        listener.close()
        workers.close()


async def receive(connection: TlsConnection, size_bytes: int) -> bytes:
    content = bytearray(size_bytes)
    done = 0
    while done < size_bytes and (count := await connection.receive_into(memoryview(content)[done:])):
        done += count
    return bytes(content[:done])


def test_bytes_and_file_slices_arrive_in_order_both_ways(authority: Authority, tmp_path: Path) -> None:
    disk = HostDisk(tmp_path, ThreadWorkers(1))
    content = Random("tls").randbytes(3_000_000)
    context = authority.identity("broker").server_context(tmp_path)

    async def echo(connection: HostConnection) -> None:
        encrypted = TlsConnection(connection, context, is_server=True)
        await encrypted.shake_hands()
        assert encrypted.peer == connection.peer
        data = await receive(encrypted, len(content) + 5)
        await encrypted.send([data[:5], b"", memoryview(data)[5:]])
        assert await receive(encrypted, 1) == b"", "the guest left"

    async def story() -> None:
        file = disk.open("file", create=True)
        file.write(0, content)
        part = FileSlice(file, 0, len(content))
        async with served(echo) as (network, port):
            connection = await TlsNetwork(network, trusting(authority)).connect("localhost", port)
            await connection.send([b"hello", part])
            assert await receive(connection, len(content) + 5) == b"hello" + content
            assert connection.try_receive_into(memoryview(bytearray(10))) is None
            connection.close()
        file.close()

    run(story)


def test_what_is_there_can_be_taken_without_waiting(authority: Authority, tmp_path: Path) -> None:
    context = authority.identity("broker").server_context(tmp_path)

    async def greet(connection: HostConnection) -> None:
        encrypted = TlsConnection(connection, context, is_server=True)
        await encrypted.shake_hands()
        await encrypted.send([b"good day"])
        assert await receive(encrypted, 1) == b"!"

    async def story() -> None:
        async with served(greet) as (network, port):
            connection = await TlsNetwork(network, trusting(authority)).connect("127.0.0.1", port)
            room = memoryview(bytearray(4))
            while (count := connection.try_receive_into(room)) is None:
                await connection.readable()
            assert bytes(room[:count]) == b"good"
            await connection.readable()  # the rest is already decrypted: the socket will not become readable again
            assert await receive(connection, 4) == b" day"
            await connection.send([b"!"])
            connection.close()

    run(story)


@pytest.mark.parametrize("fault", ["stranger", "other name"])
def test_who_is_not_to_be_trusted_gets_nothing(authority: Authority, tmp_path: Path, fault: str) -> None:
    vouching = Authority("nobody") if fault == "stranger" else authority
    identity = vouching.identity("broker", host="elsewhere", address=None if fault == "other name" else "127.0.0.1")
    context = identity.server_context(tmp_path)

    async def serve(connection: HostConnection) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await TlsConnection(connection, context, is_server=True).shake_hands()

    async def story() -> None:
        async with served(serve) as (network, port):
            with pytest.raises(ssl.SSLCertVerificationError):
                await TlsNetwork(network, trusting(authority)).connect("127.0.0.1", port)

    run(story)


def test_a_server_that_hangs_up_during_the_handshake_is_a_connection_error(authority: Authority) -> None:
    async def hang_up(_connection: HostConnection) -> None:
        pass

    async def story() -> None:
        async with served(hang_up) as (network, port):
            with pytest.raises(ConnectionError):
                await TlsNetwork(network, trusting(authority)).connect("127.0.0.1", port)

    run(story)


def test_this_network_does_not_listen(authority: Authority) -> None:
    async def story() -> None:
        workers = ThreadWorkers(1)
        with pytest.raises(OSError, match="only connects"):
            await TlsNetwork(HostNetwork(workers), trusting(authority)).listen("127.0.0.1", 0)
        workers.close()

    run(story)
