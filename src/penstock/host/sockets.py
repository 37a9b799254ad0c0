"""Plain TCP on raw sockets that never block, with any asyncio loop that has add_reader and add_writer.

Every call tries its system call at once and waits only when the kernel says so. File slices leave by `sendfile`; what
is not in the page cache is fetched there by workers first, because even a non-blocking `sendfile` waits for the
device. A send that does not end well ends the connection: half a frame would poison the stream. Slices are released
whatever happens.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.host.files import HostFile
from penstock.model.ports import Buffer, FileSlice, Workers

BACKLOG_MAX = 1024
BUFFERS_MAX = 512
"""Buffers in one `sendmsg`; the kernel takes 1,024."""
PIECE_BYTES = 512 * 1024
"""As much of a file as is probed, fetched and sent in one go."""
TURN_BYTES = 4 * 1024 * 1024
"""Sent without waiting, after this much the loop gets its turn."""


class HostConnection:
    """One end of a TCP connection. One receive and one send at a time."""

    __slots__ = ("_is_read_watched", "_local", "_loop", "_peer", "_readable", "_sent_bytes", "_socket", "_writable")

    def __init__(self, connected: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connected
        self._peer = _name(connected.getpeername())
        self._local = _name(connected.getsockname())
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_read_watched = False
        self._sent_bytes = 0  # since the last wait
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def peer(self) -> str:
        """Host and port of the other end."""
        return self._peer

    @property
    def local(self) -> str:
        """Host and port of this end."""
        return self._local

    async def receive_into(self, view: memoryview) -> int:
        """Waits for bytes; 0 means that the other end is done. ConnectionError when it broke."""
        while True:
            try:
                return self._socket.recv_into(view)
            except BlockingIOError:
                await self._until_readable()
            except OSError as error:
                raise _broken(error) from error

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all of them in order, and releases the slices whatever happens."""
        try:
            memory: list[Buffer] = []
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    if memory:
                        await self._send_memory(memory, socket.MSG_MORE)
                        memory = []
                    await self._send_slice(buffer)
                    buffer.release()
                elif len(buffer):
                    memory.append(buffer)
            if memory:
                await self._send_memory(memory, 0)
        except OSError as error:
            self.close()
            raise _broken(error) from error
        except BaseException:
            self.close()
            raise
        finally:
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    buffer.release()

    def close(self) -> None:
        """Ends the connection at once; whoever waits on it gets a ConnectionError."""
        fd = self._socket.fileno()
        if fd < 0:
            return
        if not self._loop.is_closed():
            if self._is_read_watched:
                self._loop.remove_reader(fd)
            if self._writable is not None:
                self._loop.remove_writer(fd)
        self._is_read_watched = False
        self._socket.close()
        for waiter in (self._readable, self._writable):
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionAbortedError(errno.ECONNABORTED, "the connection was closed"))

    async def _send_memory(self, memory: list[Buffer], flags: int) -> None:
        while len(memory) > BUFFERS_MAX:
            await self._send_memory(memory[:BUFFERS_MAX], socket.MSG_MORE)
            memory = memory[BUFFERS_MAX:]
        while True:
            try:
                sent = self._socket.sendmsg(memory, (), flags)
            except BlockingIOError:
                await self._until_writable()
                continue
            self._sent_bytes += sent
            memory = _rest(memory, sent)
            if not memory:
                return

    async def _send_slice(self, part: FileSlice) -> None:
        file, position, end = part.file, part.position, part.position + part.size_bytes
        while position < end:
            piece_end = min(end, position + PIECE_BYTES)
            if isinstance(file, HostFile):
                if not (file.is_resident_at(position) and file.is_resident_at(piece_end - 1)):
                    await file.read_ahead(position, piece_end - position)
                await self._send_file(file.fd, position, piece_end)
            else:
                data = file.read(position, piece_end - position)
                if len(data) < piece_end - position:
                    raise ConnectionError(errno.EIO, f"{file.path} is shorter than promised")
                await self._send_memory([data], 0)
            position = piece_end

    async def _send_file(self, fd: int, position: int, end: int) -> None:
        while position < end:
            try:  # the descriptor is asked for again each time: after a wait, its number may be somebody else's
                sent = os.sendfile(self._socket.fileno(), fd, position, end - position)
            except BlockingIOError:
                await self._until_writable()
                continue
            if sent == 0:
                raise ConnectionError(errno.EIO, "a file is shorter than promised")
            position += sent
            self._sent_bytes += sent
            if self._sent_bytes >= TURN_BYTES:
                self._sent_bytes = 0
                await asyncio.sleep(0)

    async def _until_readable(self) -> None:
        """Waits for the kernel. The watch stays when it is over: most likely it is needed again."""
        assert self._readable is None, "somebody else is receiving"
        self._readable = self._loop.create_future()
        if not self._is_read_watched:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._is_read_watched = True
        try:
            await self._readable
        finally:
            self._readable = None

    def _on_readable(self) -> None:
        if self._readable is None:
            self._loop.remove_reader(self._socket.fileno())
            self._is_read_watched = False
        elif not self._readable.done():
            self._readable.set_result(None)

    async def _until_writable(self) -> None:
        assert self._writable is None, "somebody else is sending"
        self._sent_bytes = 0
        self._writable = self._loop.create_future()
        fd = self._socket.fileno()
        self._loop.add_writer(fd, _wake, self._writable)
        try:
            await self._writable
        finally:
            if self._socket.fileno() >= 0:
                self._loop.remove_writer(fd)
            self._writable = None


class HostListener:
    """A listening socket. One accept at a time."""

    __slots__ = ("_address", "_loop", "_socket", "_waiter")

    def __init__(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._address = _name(listening.getsockname())
        self._waiter: asyncio.Future[None] | None = None

    @property
    def address(self) -> str:
        """Host and port that it really listens on."""
        return self._address

    async def accept(self) -> HostConnection:
        """The next connection. OSError with EBADF after `close`; others, such as EMFILE, may pass."""
        while True:
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                await self._until_readable()
                continue
            except ConnectionAbortedError:  # it was gone before we looked
                continue
            try:
                accepted.setblocking(False)
                return HostConnection(accepted)
            except OSError:  # it is gone already; the next one, please
                accepted.close()

    def close(self) -> None:
        """Accepts no more."""
        fd = self._socket.fileno()
        if fd < 0:
            return
        if self._waiter is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
            if not self._waiter.done():
                self._waiter.set_exception(OSError(errno.EBADF, "the listener was closed"))
        self._socket.close()

    async def _until_readable(self) -> None:
        assert self._waiter is None, "somebody else is accepting"
        self._waiter = self._loop.create_future()
        fd = self._socket.fileno()
        self._loop.add_reader(fd, _wake, self._waiter)
        try:
            await self._waiter
        finally:
            if self._socket.fileno() >= 0:
                self._loop.remove_reader(fd)
            self._waiter = None


class HostNetwork:
    """TCP. Names are looked up by workers; addresses need no look-up."""

    __slots__ = ("_workers",)

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def listen(self, host: str, port: int) -> HostListener:
        """Port 0 takes a free one."""
        family, address = (await self._resolve(host, port, socket.AI_PASSIVE))[0]
        listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG_MAX)
            return HostListener(listening)
        except BaseException:
            listening.close()
            raise

    async def connect(self, host: str, port: int) -> HostConnection:
        """Tries every address of the host in turn. OSError when nobody answers."""
        failure: OSError | None = None
        for family, address in await self._resolve(host, port, 0):
            connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            try:
                await _connect(connecting, address)
                return HostConnection(connecting)
            except OSError as error:
                connecting.close()
                failure = error
            except BaseException:
                connecting.close()
                raise
        raise failure or OSError(errno.EADDRNOTAVAIL, f"{host} has no address")

    async def _resolve(self, host: str, port: int, flags: int) -> list[tuple[int, tuple[str, int]]]:
        look_up: Callable[[int], list[tuple[int, tuple[str, int]]]] = partial(_look_up, host, port)
        with suppress(socket.gaierror):
            return look_up(flags | socket.AI_NUMERICHOST)
        return await self._workers.run(lambda: look_up(flags))


def _look_up(host: str, port: int, flags: int) -> list[tuple[int, tuple[str, int]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


async def _connect(connecting: socket.socket, address: tuple[str, int]) -> None:
    try:
        connecting.connect(address)
        return
    except BlockingIOError:
        pass
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    loop.add_writer(connecting.fileno(), _wake, waiter)
    try:
        await waiter
    finally:
        loop.remove_writer(connecting.fileno())
    if code := connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code), _name(address))


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _rest(memory: list[Buffer], sent: int) -> list[Buffer]:
    """What is left after that many bytes."""
    for number, buffer in enumerate(memory):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *memory[number + 1 :]] if sent else memory[number:]
        sent -= len(buffer)
    return []


def _broken(error: OSError) -> ConnectionError:
    return error if isinstance(error, ConnectionError) else ConnectionError(error.errno, str(error))


def _name(address: Sequence[object]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
