"""A node with scripted handlers, and clients that send raw frames to it; on virtual time or real sockets."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.model.limits import Limits
from penstock.model.ports import Connection
from penstock.server.connections.serving import Answer, Buffers, Call, serves, serves_frames, serves_overlapping
from penstock.server.handlers.cluster.api_versions import ApiVersionsHandler
from penstock.server.node import Node
from penstock.server.ports import Ports
from penstock.server.settings import ListenerSettings, NodeSettings
from penstock.wire.headers import request_frame
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.produce import ProduceRequest

LENGTH = struct.Struct(">i")
FETCH = struct.pack(">hh", 1, 18)
PRODUCE = struct.pack(">hh", 0, 13)


def framed(start: bytes, correlation_id: int, body: bytes = b"") -> bytes:
    """Builds a Fetch or Produce request whose body is ignored."""
    frame = start + struct.pack(">ih", correlation_id, 2) + b"me\x00" + body
    return LENGTH.pack(len(frame)) + frame


def fetch(correlation_id: int, body: bytes = b"") -> bytes:
    return framed(FETCH, correlation_id, body)


def produce(correlation_id: int, body: bytes = b"") -> bytes:
    return framed(PRODUCE, correlation_id, body)


def plain(correlation_id: int, partitions: int = 0) -> bytes:
    parts = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)] if parts else ())
    return bytes(request_frame(request, 6, correlation_id, "me"))


def commit(correlation_id: int, partitions: int = 1) -> bytes:
    """Builds a request that overlaps with others, and is decoded before its handler is called."""
    parts = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata=None)
        for n in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=parts)]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    return bytes(request_frame(request, 8, correlation_id, "me"))


def reply(correlation_id: int, body: bytes = b"") -> bytes:
    return LENGTH.pack(4 + len(body)) + struct.pack(">i", correlation_id) + body


@dataclass
class Script:
    """The script of the handlers: a Fetch waits for its gate; a Produce answers at once unless its gate is shut."""

    began: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    gates: dict[int, "asyncio.Future[Buffers | None]"] = field(default_factory=dict)
    shut: list[int] = field(default_factory=list)
    """Correlation ids of requests whose first stage waits for its gate."""
    answered_partitions: int = 0
    """Number of partitions in the responses to plain requests."""
    sizes: list[int] = field(default_factory=list)
    """Numbers of partitions in the decoded commits."""

    def gate(self, correlation_id: int) -> "asyncio.Future[Buffers | None]":
        if correlation_id not in self.gates:
            self.gates[correlation_id] = asyncio.get_running_loop().create_future()
        return self.gates[correlation_id]

    def let_go(self, *correlation_ids: int) -> None:
        for each in correlation_ids:
            self.gate(each).set_result(None)

    def handlers(self) -> Sequence[object]:
        return [ApiVersionsHandler((), NothingFinalized()), ScriptedHandler(self)]

    async def wait(self, correlation_id: int) -> Buffers:
        try:
            answer = await self.gate(correlation_id)
        except asyncio.CancelledError:
            self.cancelled.append(correlation_id)
            raise
        self.ended.append(correlation_id)
        return [reply(correlation_id)] if answer is None else answer


class NothingFinalized:
    """A cluster without features."""

    position = 0
    image = Image()


class ScriptedHandler:
    """A handler that follows the script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    @serves_frames(ProduceRequest)
    async def produce(self, call: Call, frame: memoryview, position: int) -> Answer:
        await self._begin(call)
        return None if bytes(frame[position:]) == b"acks=0" else [reply(call.correlation_id)]

    @serves_frames(FetchRequest)
    async def fetch(self, call: Call, frame: memoryview, position: int) -> Answer:
        self._script.began.append(call.correlation_id)
        return self._script.wait(call.correlation_id)

    @serves(ListOffsetsRequest)
    async def list_offsets(self, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        await self._begin(call)
        parts = [
            ListOffsetsPartitionResponse(partition_index=n, error_code=ErrorCode.NONE)
            for n in range(self._script.answered_partitions)
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)] if parts else ())

    @serves_overlapping(OffsetCommitRequest, is_prompt=True)
    def offset_commit(self, request: OffsetCommitRequest, call: Call) -> Answer:
        self._script.began.append(call.correlation_id)
        self._script.sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return [reply(call.correlation_id)]

    async def _begin(self, call: Call) -> None:
        self._script.began.append(call.correlation_id)
        if call.correlation_id in self._script.shut:
            await self._script.gate(call.correlation_id)
        self._script.ended.append(call.correlation_id)


class Peer:
    """A client."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def send(self, *frames: bytes) -> None:
        await self.connection.send([b"".join(frames)])

    async def receive(self) -> bytes | None:
        """Returns the next frame, or None after the other end has closed."""
        try:
            size = LENGTH.unpack(await self.exactly(4))[0]
            return await self.exactly(size)
        except (EOFError, ConnectionError):
            return None

    async def answers(self, count: int) -> list[int]:
        """Returns the correlation ids of the next responses."""
        found: list[int] = []
        for _ in range(count):
            frame = await self.receive()
            assert frame is not None, f"gone after {found}"
            found.append(struct.unpack_from(">i", frame)[0])
        return found

    async def exactly(self, size: int) -> bytes:
        content = bytearray()
        view = memoryview(bytearray(65536))
        while len(content) < size:
            count = await self.connection.receive_into(view[: min(65536, size - len(content))])
            if count == 0:
                raise EOFError
            content += view[:count]
        return bytes(content)

    async def rest(self) -> bytes:
        """Returns everything until the other end closes."""
        content = bytearray()
        view = memoryview(bytearray(65536))
        try:
            while count := await self.connection.receive_into(view):
                content += view[:count]
        except ConnectionError:
            pass
        return bytes(content)

    def close(self) -> None:
        self.connection.close()


class Place:
    """A started node and its clients."""

    def __init__(self, node: Node, ports: Ports, script: Script) -> None:
        self.node = node
        self.ports = ports
        self.script = script
        self.peers: list[Peer] = []

    async def connect(self) -> Peer:
        host, _, port = self.node.address.rpartition(":")
        self.peers.append(Peer(await self.ports.network.connect(host, int(port))))
        return self.peers[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until a condition is true."""
        for _ in range(2_000):
            if condition():
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"never became true; began {self.script.began}, ended {self.script.ended}")

    async def settle(self) -> None:
        """Waits long enough for all pending work."""
        await asyncio.sleep(0.05)


Story = Callable[[Place], Awaitable[None]]


async def tell(story: Story, ports: Ports, limits: Limits, **settings: Any) -> None:
    """Runs a story against a fresh node, and checks for leaks."""
    script = Script()
    chosen = replace(NodeSettings("test", listeners=(ListenerSettings(port=0),), limits=limits), **settings)
    node = Node(ports, chosen, handlers=script.handlers())
    await node.start()
    place = Place(node, ports, script)
    try:
        await story(place)
    finally:
        for peer in place.peers:
            peer.close()
        await node.stop()
    assert node.listeners.pool.used_bytes == 0, "the pool was not given back"
    assert node.listeners.pool.waiting == 0
    assert node.listeners.large_pool.used_bytes == 0
    assert node.listeners.large_pool.waiting == 0
    assert len(node.listeners.doors["PLAINTEXT"][0]) == 0


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [row.getMessage() for row in caplog.records if row.name == "penstock.peers"]
