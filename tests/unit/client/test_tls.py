"""TLS in the client: error messages for failed handshakes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.errors import NotABroker, NotTrusted
from penstock.client.ports import host_ports
from tests.certificates import Authority

LIMIT_S = 20
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def listen_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


def meet(client_tls: ssl.SSLContext | None, server_tls: ssl.SSLContext | None, serve: Serve = listen_and_close) -> None:
    """Requests the topics of a server on loopback, with time for more than one attempt."""

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
            port = server.sockets[0].getsockname()[1]
            async with server, Client(f"127.0.0.1:{port}", tls=client_tls, timeout_ms=2 * LIMIT_S * 1000) as client:
                await client.topics()

    asyncio.run(main())


def test_an_unknown_authority_is_said_once_and_not_tried_again(authority: Authority, tmp_path: Path) -> None:
    server = Authority("nobody").identity("broker").server_context(tmp_path)
    with pytest.raises(NotTrusted, match="does the client know the authority"):
        meet(ssl.create_default_context(cadata=authority.pem), server)


def test_another_name_is_named(authority: Authority, tmp_path: Path) -> None:
    server = authority.identity("broker", host="elsewhere", address=None).server_context(tmp_path)
    with pytest.raises(NotTrusted, match=r"127\.0\.0\.1.*and the broker its own name"):
        meet(ssl.create_default_context(cadata=authority.pem), server)


def test_a_broker_that_wants_a_certificate_says_so(authority: Authority, tmp_path: Path) -> None:
    server = authority.identity("broker").server_context(tmp_path)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=authority.pem)
    left = asyncio.Event()

    async def ask_for_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Drives TLS by hand, because asyncio closes the connection before its last alert is delivered."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server.wrap_bio(incoming, outgoing, server_side=True)
        while data := await reader.read(65536):
            incoming.write(data)
            with suppress(ssl.SSLError):
                tls.do_handshake()
            writer.write(outgoing.read())
        writer.close()
        left.set()

    with pytest.raises(NotTrusted, match="it may want a certificate of the client"):
        meet(ssl.create_default_context(cadata=authority.pem), None, ask_for_it)
    assert left.is_set()


def test_a_port_without_tls_is_told_apart(authority: Authority) -> None:
    async def answer_in_the_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\0\0\0\4abcd" * 10)
        writer.close()

    with pytest.raises(NotABroker, match="does not speak TLS"):
        meet(ssl.create_default_context(cadata=authority.pem), None, answer_in_the_clear)


def test_ports_of_the_callers_own_are_not_encrypted_behind_its_back(authority: Authority) -> None:
    ports = host_ports()
    with pytest.raises(ValueError, match="encrypt there"):
        Client("localhost", tls=ssl.create_default_context(cadata=authority.pem), ports=ports)
    ports.close()
