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
PIECE_BYTES = 1024 * 1024
"""As much of a file as is probed, fetched and sent in one go."""
SMALL_BYTES = 128 * 1024
"""What the kernel reads ahead by itself."""
TURN_BYTES = 4 * 1024 * 1024
"""Sent without waiting, after this much the loop gets its turn."""


class _Watch:
    """Waits until a descriptor is readable, or writable.

    The watch stays with the loop when the wait is over: most likely it is needed again. If not, events end it; not the
    first, which often belongs to what is just being received.
    """

    __slots__ = ("_add", "_fd", "_is_set", "_loop", "_remove", "_unwanted", "_waiter")

    def __init__(self, fd: int, *, is_for_reading: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._add = self._loop.add_reader if is_for_reading else self._loop.add_writer
        self._remove = self._loop.remove_reader if is_for_reading else self._loop.remove_writer
        self._fd = fd
        self._is_set = False
        self._unwanted = 0
        """Events since the last wait that nobody waited for."""
        self._waiter: asyncio.Future[None] | None = None

    def ready(self) -> "asyncio.Future[None]":
        """Done when the kernel says so. One at a time."""
        assert self._waiter is None or self._waiter.done(), "somebody else is waiting"
        self._waiter = self._loop.create_future()
        self._unwanted = 0
        if not self._is_set:
            self._is_set = True
            self._add(self._fd, self._on_event)
        return self._waiter

    def close(self, error: OSError) -> None:
        """Before the descriptor is closed. Whoever waits gets the error."""
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
        self._sent_bytes = 0  # since the loop last had its turn
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
        while (count := self.try_receive_into(view)) is None:
            await self._read_watch.ready()
        return count

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting: None when nothing is there."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None
        except ConnectionError:
            raise
        except OSError as error:
            raise ConnectionError(error.errno, str(error)) from error

    async def readable(self) -> None:
        """Waits until there may be something to receive."""
        if self._socket.fileno() >= 0:
            await self._read_watch.ready()

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Sends all of them in order, and releases the slices whatever happens."""
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
        """Ends the connection at once; whoever waits on it gets a ConnectionError."""
        if self._socket.fileno() >= 0:
            for watch in (self._read_watch, self._write_watch):
                watch.close(ConnectionAbortedError(errno.ECONNABORTED, "the connection was closed"))
            self._socket.close()

    def _push_memory(self, memory: list[Buffer], flags: int) -> list[Buffer]:
        """Sends what goes without waiting; what is left."""
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
        """Sends what goes without waiting if the slice is one piece and hot; how much that was."""
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
            try:  # the descriptor is asked for again each time: after a wait, its number may be somebody else's
                sent = os.sendfile(self._socket.fileno(), fd, position, end - position)
            except BlockingIOError:
                await self._until_writable()
                continue
            if sent == 0:
                raise ConnectionError(errno.EIO, "a file is shorter than promised")
            position += sent
            self._sent_bytes += sent

    async def _take_turns(self) -> None:
        """Before more of a file is sent, never before the few bytes that end an answer."""
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
        """Host and port that it really listens on."""
        return self._address

    async def accept(self) -> HostConnection:
        """The next connection. OSError with EBADF after `close`; others, such as EMFILE, may pass."""
        while True:
            try:
                accepted, _ = self._socket.accept()
            except BlockingIOError:
                await self._watch.ready()
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
        if self._socket.fileno() >= 0:
            self._watch.close(OSError(errno.EBADF, "the listener was closed"))
            self._socket.close()


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


def _is_hot(file: HostFile, position: int, size_bytes: int) -> bool:
    """Whether both ends are resident; of a small part, its end: what it costs to be wrong there is one short read."""
    if size_bytes > SMALL_BYTES and not file.is_resident_at(position):
        return False
    return file.is_resident_at(position + max(0, size_bytes - 1))


def _name(address: Sequence[object]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
