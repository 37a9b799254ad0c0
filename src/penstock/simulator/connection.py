"""The Connection port: two ends, and a pipe in each direction.

Bytes are FIFO inside a pipe and bounded by its window, which is freed when the other end has read *and* its
acknowledgement can travel. Sent data arrives even if the sender is gone, as long as the link passes it. Data for an end
that is gone is answered by a reset; a machine without power does not answer.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

from penstock.model.ports import Buffer, FileSlice
from penstock.simulator.callback import Callback
from penstock.simulator.link import Link
from penstock.simulator.loop import VirtualLoop

GATHER_BYTES = 32 * 1024
"""Small buffers of one send are sent together, up to this size."""


class Machine(Protocol):
    """A host, as its connections see it."""

    name: str
    ends: "dict[int, SimulatedConnection]"


class Wires(Protocol):
    """The network, as connections see it."""

    loop: VirtualLoop
    give_up_s: float
    window_bytes: int

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another."""

    def passes(self, link: Link) -> bool:
        """Whether the link passes data now."""

    def at(self, time_s: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Schedules a callback of the network itself."""

    def note(self, what: str, end: "SimulatedConnection", content: bytes = b"") -> None:
        """Adds a row to the trace."""

    def answer_reset(self, pipe: "Pipe") -> None:
        """Answers data for an end that is gone with a reset."""


class Signal:
    """A signal that travels in a pipe, in order with the bytes."""

    def __init__(self, name: str) -> None:
        self.name = name


FIN = Signal("fin")
RST = Signal("rst")


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_give_up",
        "arrived",
        "in_flight_bytes",
        "is_ended",
        "is_lost",
        "last_arrival_s",
        "link",
        "network",
        "source",
        "stalled",
        "target",
        "unacknowledged_bytes",
        "way_back",
    )

    def __init__(self, network: Wires, source: "SimulatedConnection", target: "SimulatedConnection") -> None:
        self.network = network
        self.source = source
        self.target = target
        self.link: Link = network.link(source.host.name, target.host.name)
        self.way_back: Link = network.link(target.host.name, source.host.name)
        self.arrived: deque[memoryview] = deque()
        self.stalled: deque[bytes | Signal] = deque()
        self.in_flight_bytes = 0
        """Bytes sent, and not yet acknowledged as read."""
        self.unacknowledged_bytes = 0
        """Bytes read whose acknowledgement is held up."""
        self.last_arrival_s = 0.0
        self.is_ended = False
        """The other end closed, and all bytes before that have arrived."""
        self.is_lost = False
        """Data was dropped, so nothing after it may arrive."""
        self._give_up: Callback | None = None

    def put(self, piece: bytes) -> None:
        """Sends bytes."""
        self.in_flight_bytes += len(piece)
        settings = self.link.settings
        if settings.fragment and len(piece) > 1 and self.link.stream.random() < settings.fragment:
            middle = self.link.stream.randrange(1, len(piece))
            self._travel(piece[:middle], middle)
            piece = piece[middle:]
        self._travel(piece, len(piece))

    def put_signal(self, signal: Signal) -> None:
        """Sends a signal, after all bytes."""
        self._travel(signal, 0)

    def _travel(self, piece: bytes | Signal, size_bytes: int) -> None:
        network = self.network
        arrival_s = self.link.arrival_s(network.loop.time(), size_bytes)
        self.last_arrival_s = arrival_s = max(arrival_s, self.last_arrival_s)
        network.at(arrival_s, self._deliver, piece)

    def _deliver(self, piece: bytes | Signal) -> None:
        if self.is_lost:
            return
        if self.stalled or not self.network.passes(self.link):
            if self.source.has_vanished:
                self.lose()
                return
            self.stalled.append(piece)
            self.link.stalled[self] = None
            self._wait_for_link()
        else:
            self._arrive(piece)

    def release(self) -> None:
        """Delivers stalled data in order, if the link passes again."""
        if self.is_lost or not self.stalled:
            return
        if not self.network.passes(self.link):
            self.link.stalled[self] = None
            return
        self._stop_waiting()
        pieces = list(self.stalled)
        self.stalled.clear()
        for piece in pieces:
            self._arrive(piece)

    def _arrive(self, piece: bytes | Signal) -> None:
        target = self.target
        if isinstance(piece, Signal):
            self.network.note(piece.name, target)
            if piece is RST:
                target.break_off("reset by peer")
            else:
                self.is_ended = True
                target.wake_reader()
        elif target.is_gone:
            self.network.answer_reset(self)
        else:
            self.network.note("deliver", target, piece)
            self.arrived.append(memoryview(piece))
            target.wake_reader()

    def take(self, view: memoryview) -> int:
        """Moves arrived bytes to the reader."""
        size = 0
        while self.arrived and size < len(view):
            piece = self.arrived[0]
            count = min(len(piece), len(view) - size)
            view[size : size + count] = piece[:count]
            size += count
            if count == len(piece):
                self.arrived.popleft()
            else:
                self.arrived[0] = piece[count:]
        self.unacknowledged_bytes += size
        self.acknowledge()
        return size

    def acknowledge(self) -> None:
        """Frees the window, if the link back passes."""
        if self.network.passes(self.way_back):
            if self._give_up is not None and not self.stalled:
                self._stop_waiting()
            self.in_flight_bytes -= self.unacknowledged_bytes
            self.unacknowledged_bytes = 0
            self.source.wake_writer()
        else:
            self.way_back.acks_waiting[self] = None
            self._wait_for_link()

    def lose(self) -> None:
        """Drops all data that has not arrived."""
        self.is_lost = True
        self.stalled.clear()
        self._stop_waiting()

    def _wait_for_link(self) -> None:
        if self._give_up is None:
            network = self.network
            self._give_up = network.at(network.loop.time() + network.give_up_s, self._time_out)

    def _stop_waiting(self) -> None:
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None

    def _time_out(self) -> None:
        self._give_up = None
        self.network.note("time-out", self.source)
        self.lose()
        self.source.break_off("no acknowledgement for too long")


class SimulatedConnection:
    """One end of a connection."""

    def __init__(self, network: Wires, number: int, host: Machine, local: str, peer: str) -> None:
        self.network = network
        self.number = number
        self.host = host
        self.incoming: Pipe
        self.outgoing: Pipe
        self.is_closed = False
        self.has_vanished = False
        """Its machine lost power: data on the wire arrives, but is not sent again."""
        self.error: str | None = None
        self._local = local
        self._peer = peer
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_sending = False
        host.ends[number] = self

    @property
    def peer(self) -> str:
        """Host and port of the other end."""
        return self._peer

    @property
    def local(self) -> str:
        """Host and port of this end."""
        return self._local

    @property
    def is_gone(self) -> bool:
        """Whether this end is closed or broken."""
        return self.is_closed or self.error is not None

    async def receive_into(self, view: memoryview) -> int:
        """Waits for bytes; 0 means that the other end closed."""
        while (count := self.try_receive_into(view)) is None:
            await self._wait()
        return count

    def try_receive_into(self, view: memoryview) -> int | None:
        """The same without waiting; None if no bytes are available."""
        if self._reader is not None:
            raise RuntimeError(f"two readers on {self._local}")
        if self.is_closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{self._local} is closed")
        if self.incoming.arrived:
            return self.incoming.take(view)
        if self.error is not None:
            raise ConnectionResetError(errno.ECONNRESET, self.error)
        return 0 if self.incoming.is_ended else None

    async def readable(self) -> None:
        """Waits until there are bytes, an end or an error to receive."""
        while not (self.is_gone or self.incoming.arrived or self.incoming.is_ended):
            await self._wait()

    async def _wait(self) -> None:
        self._reader = self.network.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        """Returns when all data is sent; waits while the window is full. A failed send closes the connection."""
        if self._is_sending:
            raise RuntimeError(f"two writers on {self._local}")
        self._is_sending = True
        try:
            self._check_sendable()
            if len(buffers) == 1 and self._fits(only := buffers[0]):
                self.outgoing.put(bytes(only))
                return
            gathered: list[bytes] = []
            gathered_bytes = 0
            for buffer in buffers:
                position = 0
                while position < len(buffer):
                    data = self._read(buffer, position)
                    position += len(data)
                    gathered.append(data)
                    gathered_bytes += len(data)
                    if gathered_bytes >= GATHER_BYTES:
                        await self._push(b"".join(gathered))
                        gathered.clear()
                        gathered_bytes = 0
            if gathered:
                await self._push(b"".join(gathered))
        except BaseException:
            self.close()  # a partial frame would corrupt the stream
            raise
        finally:
            self._is_sending = False
            for buffer in buffers:
                if isinstance(buffer, FileSlice):
                    buffer.release()

    def close(self) -> None:
        """Closes this end; the other end learns it after the sent data, by a reset if data was left unread."""
        if self.is_closed:
            return
        self.is_closed = True
        self.host.ends.pop(self.number, None)
        self.network.note("close", self)
        if self.error is None:
            self.outgoing.put_signal(RST if self.incoming.arrived else FIN)
        self._forget()

    def vanish(self) -> None:
        """Closes this end of a machine that lost power; the other end is not notified."""
        self.is_closed = self.has_vanished = True
        self.host.ends.pop(self.number, None)
        if self.outgoing.stalled:
            self.outgoing.lose()
        self._forget()

    def break_off(self, why: str) -> None:
        """Breaks this end with a reset; the other end notices only when it sends."""
        if not self.is_gone:
            self.error = why
            self.network.note("broken", self)
            self.wake_reader()
            self.wake_writer()

    def wake_reader(self) -> None:
        """Wakes the receiving task after a change."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def wake_writer(self) -> None:
        """Wakes the sending task after a change."""
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _fits(self, buffer: Buffer | FileSlice) -> TypeGuard[Buffer]:
        """Whether the buffer can be sent in one piece: a fast path for the usual case."""
        if isinstance(buffer, FileSlice):
            return False
        return 0 < len(buffer) <= self.network.window_bytes - self.outgoing.in_flight_bytes

    def _read(self, buffer: Buffer | FileSlice, position: int) -> bytes:
        if not isinstance(buffer, FileSlice):
            return bytes(buffer)
        size = min(GATHER_BYTES, buffer.size_bytes - position)
        try:
            data = buffer.file.read(buffer.position + position, size)
        except OSError as error:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"cannot read {buffer.file.path}") from error
        if len(data) < size:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{buffer.file.path} is shorter than promised")
        return data

    async def _push(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            self._check_sendable()
            room = self.network.window_bytes - self.outgoing.in_flight_bytes
            if room > 0:
                piece = data[position : position + room]
                position += len(piece)
                self.outgoing.put(piece)
                continue
            self._writer = self.network.loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def _check_sendable(self) -> None:
        if self.is_closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"{self._local} is closed")
        if self.error is not None:
            raise ConnectionResetError(errno.ECONNRESET, self.error)

    def _forget(self) -> None:
        self.incoming.arrived.clear()
        self.wake_reader()
        self.wake_writer()
