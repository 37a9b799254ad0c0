"""TLS over any connection: a Network that encrypts the traffic of another one.

The protocol runs in memory (`ssl.MemoryBIO`), so the connection below keeps its own way of waiting. Messages of TLS
itself after the handshake are sent with the next application data. If the peer cannot be authenticated, the handshake
fails with `ssl.SSLError`, which is an OSError; the TLS alert is sent before that.
"""

import errno
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from penstock.model.ports import Buffer, Connection, FileSlice, Listener, Network

RECEIVE_BYTES = 256 * 1024
PIECE_BYTES = 256 * 1024
"""Bytes that are encrypted at a time."""


class TlsConnection:
    """One end of an encrypted connection. One receive and one send at a time, after `shake_hands`."""

    __slots__ = ("_connection", "_incoming", "_outgoing", "_raw", "_tls")

    def __init__(
        self, connection: Connection, context: ssl.SSLContext, *, host: str | None = None, is_server: bool = False
    ) -> None:
        self._connection = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server, server_hostname=host)
        self._raw = memoryview(bytearray(RECEIVE_BYTES))

    @property
    def peer(self) -> str:
        """Host and port of the other end."""
        return self._connection.peer

    @property
    def local(self) -> str:
        """Host and port of this end."""
        return self._connection.local

    async def shake_hands(self) -> None:
        """Agrees on keys and authenticates the peer; raises OSError on failure."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._receive():
                    raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake") from None
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    async def receive_into(self, view: memoryview) -> int:
        """Waits for bytes; 0 is the end of the stream. Raises OSError if the connection broke."""
        while (count := self._decrypt(view)) is None:
            await self._receive()
        return count

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting; None if no bytes are available."""
        if (count := self._decrypt(view)) is not None:
            return count
        raw = self._connection.try_receive_into(self._raw)
        if raw is None:
            return None
        self._take(raw)
        return self._decrypt(view)

    async def readable(self) -> None:
        """Waits until there may be bytes to receive."""
        if not self._tls.pending() and not self._incoming.pending:
            await self._connection.readable()

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all buffers in order; releases the slices even if sending fails."""
        try:
            for buffer in buffers:
                view = memoryview(buffer.read() if isinstance(buffer, FileSlice) else buffer)
                for start in range(0, len(view), PIECE_BYTES):
                    self._tls.write(view[start : start + PIECE_BYTES])
                    await self._flush()
        finally:
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    buffer.release()

    def close(self) -> None:
        """Closes the connection at once."""
        self._connection.close()

    def _decrypt(self, view: memoryview) -> int | None:
        """Decrypts all that is available and fits: one TLS record holds at most 16 KiB."""
        count = 0
        try:
            while count < len(view):
                got = cast("int", self._tls.read(len(view) - count, view[count:]))
                if not got:
                    break
                count += got
        except ssl.SSLWantReadError:
            return count or None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass  # end of the stream, with or without close_notify
        return count

    async def _receive(self) -> int:
        count = await self._connection.receive_into(self._raw)
        self._take(count)
        return count

    def _take(self, count: int) -> None:
        if count:
            self._incoming.write(self._raw[:count])
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._connection.send([self._outgoing.read()])


class TlsNetwork:
    """Connects through another Network, and encrypts. It does not listen."""

    __slots__ = ("_context", "_network")

    def __init__(self, network: Network, context: ssl.SSLContext) -> None:
        self._network = network
        self._context = context

    async def listen(self, host: str, port: int) -> Listener:
        """Not supported."""
        raise OSError(errno.EOPNOTSUPP, f"no TLS listener on {host}:{port}: this network only connects")

    async def connect(self, host: str, port: int) -> TlsConnection:
        """Opens a connection. Raises OSError if there is no answer or the peer is not trusted."""
        connection = await self._network.connect(host, port)
        try:
            encrypted = TlsConnection(connection, self._context, host=host)
            await encrypted.shake_hands()
        except BaseException:
            connection.close()
            raise
        return encrypted
