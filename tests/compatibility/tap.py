"""A tap between a client and a broker: it relays frames, records Produce requests, and can break connections.

Metadata responses are changed so that clients connect to the tap. A broken connection is reset on both sides,
alternately in two ways: after a Produce request was carried out, whose response is lost; and in the middle of a Produce
request.
"""

import asyncio
import contextlib
import copy
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Self

from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.headers import read_request_header, read_response_header, read_start, response_frame
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

HOST = "127.0.0.1"
TIMEOUT_S = 10.0
_SIZE = struct.Struct(">i")
# Close at once and discard unsent data, which the other side sees as a reset.
_RESET = struct.pack("ii", 1, 0)
# The most Produce requests that a connection carries before it is broken.
_REQUESTS_BEFORE_BREAK_MAX = 2


class Produced(NamedTuple):
    """The observed properties of a Produce request."""

    acks: int
    batch_bytes: tuple[int, ...]


Place = tuple[str | bytes, int]
"""A partition, by its topic's name or id."""


class _Asked(NamedTuple):
    key: int
    version: int
    is_last: bool
    places: frozenset[Place] = frozenset()


class Broken(ConnectionError):
    """The tap breaks a connection."""


class Tap:
    """Relays to the broker at `address` while it is entered; the first `breaks` connections that produce are broken."""

    def __init__(self, address: str, breaks: int = 0, answer_delay_s: float = 0.0) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._breaks_wanted = breaks
        self._answer_delay_s = answer_delay_s
        self._breaks_begun = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: set[asyncio.Task[None]] = set()
        self.bootstrap = ""
        self.produced: list[Produced] = []
        self.answers_lost = 0
        self.requests_torn = 0
        self.requests_in_flight_max = 0
        """The most Produce requests of one connection that waited for responses at the same time."""
        self.batches_in_flight_max = 0
        """The most of them that had a batch for the same partition."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        troubles = asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if error is None and troubles:
            raise troubles[0]

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.bootstrap = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> list[BaseException]:
        self._server.close()
        for link in self._links:
            link.cancel()
        ended = await asyncio.gather(*self._links, return_exceptions=True)
        return [each for each in ended if isinstance(each, Exception)]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(self._loop.create_task(self._relay(reader, writer)))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relays until both sides are done, or one of them breaks."""
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        asked: deque[_Asked] = deque()
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_requests(reader, broker_writer, asked))
                ways.create_task(self._pass_answers(broker_reader, writer, asked))
        except* OSError:
            for end in (writer, broker_writer):
                if not end.is_closing():
                    end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        finally:
            for end in (writer, broker_writer):
                end.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        """Ends when the client is done, after its last bytes; raises Broken when the connection is to break."""
        left: int | None = None
        loses_answer = False
        async for frame in _frames(reader):
            key, version, _ = read_start(frame)
            is_last = False
            if key == Api.PRODUCE:
                if left is None and self._breaks_begun < self._breaks_wanted:
                    left = self._breaks_begun // 2 % (_REQUESTS_BEFORE_BREAK_MAX + 1)
                    loses_answer = self._breaks_begun % 2 == 0
                    self._breaks_begun += 1
                is_last = left == 0
                left = None if left is None else left - 1
                if is_last and not loses_answer:
                    self.requests_torn += 1
                    broker.write((_SIZE.pack(len(frame)) + frame)[: len(frame) // 2])
                    await broker.drain()
                    raise Broken
            self._note(key, version, frame, is_last, asked)
            broker.write(_SIZE.pack(len(frame)))
            broker.write(frame)
            await broker.drain()
        broker.write_eof()

    def _note(self, key: int, version: int, frame: memoryview, is_last: bool, asked: deque[_Asked]) -> None:
        if key != Api.PRODUCE:
            asked.append(_Asked(key, version, is_last))
            return
        _, position = read_request_header(Api.PRODUCE, version, frame)
        request = read_produce(version, frame, position)
        sizes = tuple(len(records) for _, _, records in request.parts if records is not None)
        self.produced.append(Produced(request.acks, sizes))
        if request.acks == 0:
            return
        asked.append(_Asked(key, version, is_last, frozenset((topic, index) for topic, index, _ in request.parts)))
        waiting = Counter(place for each in asked for place in each.places)
        self.batches_in_flight_max = max(self.batches_in_flight_max, *waiting.values())
        self.requests_in_flight_max = max(self.requests_in_flight_max, sum(bool(each.places) for each in asked))

    async def _pass_answers(
        self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        """Ends when the broker is done; raises Broken when the response to lose has arrived."""
        async for frame in _frames(broker):
            request = asked[0]
            if request.is_last:
                self.answers_lost += 1
                raise Broken
            if request.key == Api.PRODUCE:
                await asyncio.sleep(self._answer_delay_s)
            asked.popleft()
            if request.key == Api.METADATA:
                writer.write(self._here(frame, request.version))
            else:
                writer.write(_SIZE.pack(len(frame)))
                writer.write(frame)
            await writer.drain()
        writer.write_eof()

    def _here(self, frame: memoryview, version: int) -> bytearray:
        """The same Metadata response, with the tap's address for the broker."""
        header, position = read_response_header(Api.METADATA, version, frame)
        answer = copy.copy(decode(MetadataResponse, version, frame, position))
        host, _, port = self.bootstrap.rpartition(":")
        answer.brokers = [
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=int(port), rack=broker.rack)
            for broker in answer.brokers
        ]
        return response_frame(answer, version, header.correlation_id)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[memoryview]:
    """Whole frames, until the stream ends."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            yield memoryview(await reader.readexactly(size))
