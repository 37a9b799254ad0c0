"""Plain TCP on raw non-blocking sockets, with any asyncio loop that has add_reader and add_writer.

Every call tries its system call at once and waits only if it would block. File slices are sent by `sendfile`; data that
is not in the page cache is first loaded by workers, because even a non-blocking `sendfile` waits for the device. A
failed send closes the connection: a partial frame would corrupt the stream. Slices are released in any case.
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
"""Buffers in one `sendmsg`; the kernel allows 1,024."""
PIECE_BYTES = 1024 * 1024
"""Bytes of a file that are probed, loaded and sent in one step."""
SMALL_BYTES = 128 * 1024
"""The kernel's own readahead."""
TURN_BYTES = 4 * 1024 * 1024
"""After this many bytes sent without waiting, the connection yields to the loop."""


class _Watch:
    """Waits until a descriptor is readable, or writable.

    The watch stays registered with the loop after the wait: most likely it is needed again. If not, the second unwanted
    event removes it; the first often belongs to data that is just being received.
    """

    __slots__ = ("_add", "_fd", "_is_set", "_loop", "_remove", "_unwanted", "_waiter")

    def __init__(self, fd: int, *, is_for_reading: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._add = self._loop.add_reader if is_for_reading else self._loop.add_writer
        self._remove = self._loop.remove_reader if is_for_reading else self._loop.remove_writer
        self._fd = fd
        self._is_set = False
        self._unwanted = 0
        """Events since the last wait for which no task waited."""
        self._waiter: asyncio.Future[None] | None = None

    def ready(self) -> "asyncio.Future[None]":
        """A future that is done when the descriptor is ready. One at a time."""
        assert self._waiter is None or self._waiter.done(), "somebody else is waiting"
        self._waiter = self._loop.create_future()
        self._unwanted = 0
        if not self._is_set:
            self._is_set = True
            self._add(self._fd, self._on_event)
        return self._waiter

    def close(self, error: OSError) -> None:
        """Ends the watch before the descriptor is closed. A waiting task gets the error."""
        if self._is_set and not self._loop.is_closed():
            self._remove(self._fd)
        self._is_set = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _on_event(self) -> None:
        if self._waiter is None or self._waiter.done():
            self._unwanted += 1
            if self._unwanted > 1:
                self._remove(self._fd)
                self._is_set = False
        else:
            self._waiter.set_result(None)


class HostConnection:
    """One end of a TCP connection. One receive and one send at a time."""

    __slots__ = ("_local", "_peer", "_read_watch", "_sent_bytes", "_socket", "_write_watch")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._peer = _name(connected.getpeername())
        self._local = _name(connected.getsockname())
        self._read_watch = _Watch(connected.fileno(), is_for_reading=True)
        self._write_watch = _Watch(connected.fileno(), is_for_reading=False)
        self._sent_bytes = 0  # since the last yield to the loop
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
        """Waits for bytes; 0 is the end of the stream. Raises ConnectionError if the connection broke."""
        while (count := self.try_receive_into(view)) is None:
            await self._read_watch.ready()
        return count

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting; None if no bytes are available."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None
        except ConnectionError:
            raise
        except OSError as error:
            raise ConnectionError(error.errno, str(error)) from error

    async def readable(self) -> None:
        """Waits until there may be bytes to receive."""
        if self._socket.fileno() >= 0:
            await self._read_watch.ready()

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all buffers in order; releases the slices even if sending fails."""
        memory: list[Buffer] = []
        try:
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    if memory:
                        if rest := self._push_memory(memory, socket.MSG_MORE):
                            await self._send_memory(rest, socket.MSG_MORE)
                        memory.clear()
                    if self._sent_bytes >= TURN_BYTES:
                        await self._take_turns()
                    if (sent := self._push_slice(buffer)) < buffer.size_bytes:
                        await self._send_slice(buffer, sent)
                    buffer.release()
                elif len(buffer):
                    memory.append(buffer)
            if memory and (rest := self._push_memory(memory, 0)):
                await self._send_memory(rest, 0)
        except BaseException as error:
            self.close()
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    buffer.release()
            if isinstance(error, OSError) and not isinstance(error, ConnectionError):
                raise ConnectionError(error.errno, str(error)) from error
            raise

    def close(self) -> None:
        """Closes the connection at once; a task that waits on it gets a ConnectionError."""
        if self._socket.fileno() >= 0:
            for watch in (self._read_watch, self._write_watch):
                watch.close(ConnectionAbortedError(errno.ECONNABORTED, "the connection was closed"))
            self._socket.close()

    def _push_memory(self, memory: list[Buffer], flags: int) -> list[Buffer]:
        """Sends as much as possible without waiting; returns the rest."""
        if len(memory) == 1:  # the header before a slice
            buffer = memory[0]
            try:
                sent = self._socket.send(buffer, flags)
            except BlockingIOError:
                return memory
            self._sent_bytes += sent
            return [] if sent == len(buffer) else [memoryview(buffer)[sent:]]
        while memory:
            batch = memory if len(memory) <= BUFFERS_MAX else memory[:BUFFERS_MAX]
            try:
                sent = self._socket.sendmsg(batch, (), flags)
            except BlockingIOError:
                break
            self._sent_bytes += sent
            for number, buffer in enumerate(batch):
                if sent < len(buffer):
                    return [memoryview(buffer)[sent:], *memory[number + 1 :]]
                sent -= len(buffer)
            memory = memory[len(batch) :]
        return memory

    async def _send_memory(self, rest: list[Buffer], flags: int) -> None:
        while rest:
            await self._until_writable()
            rest = self._push_memory(rest, flags)

    def _push_slice(self, part: FileSlice) -> int:
        """Sends as much as possible without waiting if the slice is one resident piece; returns the bytes sent."""
        file = part.file
        if part.size_bytes > PIECE_BYTES or not isinstance(file, HostFile):
            return 0
        if not _is_hot(file, part.position, part.size_bytes):
            return 0
        try:
            sent = os.sendfile(self._socket.fileno(), file.fd, part.position, part.size_bytes)
        except BlockingIOError:
            return 0
        self._sent_bytes += sent
        return sent

    async def _send_slice(self, part: FileSlice, sent: int) -> None:
        file, position, end = part.file, part.position + sent, part.position + part.size_bytes
        while position < end:
            piece_end = min(end, position + PIECE_BYTES)
            if isinstance(file, HostFile):
                if not _is_hot(file, position, piece_end - position):
                    await file.read_ahead(position, piece_end - position)
                await self._send_file(file.fd, position, piece_end)
            else:
                data = file.read(position, piece_end - position)
                if len(data) < piece_end - position:
                    raise ConnectionError(errno.EIO, f"{file.path} is shorter than promised")
                if rest := self._push_memory([data], 0):
                    await self._send_memory(rest, 0)
            position = piece_end

    async def _send_file(self, fd: int, position: int, end: int) -> None:
        while position < end:
            if self._sent_bytes >= TURN_BYTES:
                await self._take_turns()
            try:  # the socket's descriptor is read each time: after a wait, its number may have been reused
                sent = os.sendfile(self._socket.fileno(), fd, position, end - position)
            except BlockingIOError:
                await self._until_writable()
                continue
            if sent == 0:
                raise ConnectionError(errno.EIO, "a file is shorter than promised")
            position += sent
            self._sent_bytes += sent

    async def _take_turns(self) -> None:
        """Yields to the loop before more of a file is sent, never before the few bytes that end a response."""
        self._sent_bytes = 0
        await asyncio.sleep(0)

    async def _until_writable(self) -> None:
        self._sent_bytes = 0
        await self._write_watch.ready()


class HostListener:
    """A listening socket. One accept at a time."""

    __slots__ = ("_address", "_socket", "_watch")

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._address = _name(listening.getsockname())
        self._watch = _Watch(listening.fileno(), is_for_reading=True)

    @property
    def address(self) -> str:
        """Host and port on which it actually listens."""
        return self._address

    async def accept(self) -> HostConnection:
        """Waits for the next connection. Raises EBADF after `close`; other errors, such as EMFILE, may be temporary."""
        while True:
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                await self._watch.ready()
                continue
            except ConnectionAbortedError:  # the peer aborted it before the accept
                continue
            try:
                accepted.setblocking(False)
                return HostConnection(accepted)
            except OSError:  # it is already gone; accept the next one
                accepted.close()

    def close(self) -> None:
        """Stops accepting connections."""
        if self._socket.fileno() >= 0:
            self._watch.close(OSError(errno.EBADF, "the listener was closed"))
            self._socket.close()


class HostNetwork:
    """TCP. Host names are resolved by workers; addresses need no lookup."""

    __slots__ = ("_workers",)

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def listen(self, host: str, port: int) -> HostListener:
        """Starts to listen; port 0 selects a free port."""
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
        """Tries every address of the host in turn. Raises OSError if none answers."""
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


def _is_hot(file: HostFile, position: int, size_bytes: int) -> bool:
    """Whether both ends are resident; of a small part only its end: a wrong answer there costs one short read."""
    if size_bytes > SMALL_BYTES and not file.is_resident_at(position):
        return False
    return file.is_resident_at(position + max(0, size_bytes - 1))


def _name(address: Sequence[object]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
