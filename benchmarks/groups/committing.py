"""Load of offset commits, a separate process: pre-encoded requests, few connections, responses compared as bytes.

    python -m benchmarks.groups.committing ADDRESS TOPIC GROUPS PARTITIONS SECONDS LINES DEPTH RATE SHARD SHARDS

Each request commits all partitions of one group, one group after the other. Every group commits once before the
measurement. DEPTH requests are in flight on each of LINES connections. With RATE > 0 requests a second, a request is
sent when it is due, whatever the number in flight, and its latency counts from its due time. With SHARD >= 0 only
groups of that shard out of SHARDS take part. The last line printed is JSON.
"""

import asyncio
import itertools
import json
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from penstock.coordinator.placement import partition_of
from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

VERSION: Final = 8
CORRELATION_ID: Final = 7
_SIZE: Final = struct.Struct(">i")


def frames(topic: str, groups: Sequence[str], partitions: int, offset: int) -> list[bytes]:
    """The encoded request of each group."""
    wanted = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
        for each in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=wanted)]
    return [
        bytes(
            request_frame(OffsetCommitRequest(group_id=each, member_id="", topics=topics), VERSION, CORRELATION_ID, "b")
        )
        for each in groups
    ]


def group_id(number: int) -> str:
    """The name of a group."""
    return f"group-{number:06}"


def group_ids(count: int, shard: int, shards: int) -> list[str]:
    """The names of `count` groups, of one shard or of all (-1)."""
    named = (group_id(number) for number in itertools.count())
    return list(itertools.islice((each for each in named if shard in (-1, partition_of(each, shards))), count))


class Refused(Exception):
    """The broker refused a commit."""


class Line(asyncio.Protocol):
    """One connection, on which responses arrive in the order of requests."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._buffer = bytearray()
        self.sent: deque[float] = deque()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, due_s: float) -> None:
        self.sent.append(due_s)
        self.transport.write(self._load.next_frame())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        now_s = time.perf_counter()
        while len(buffer) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, position)
            end = position + _SIZE.size + size
            if len(buffer) < end:
                break
            self._load.answered(self, bytes(buffer[position + _SIZE.size : end]), now_s - self.sent.popleft())
            position = end
        del buffer[:position]

    def connection_lost(self, error: Exception | None) -> None:
        if self.sent:
            self._load.fail(error or ConnectionError("the broker has closed the connection"))


class Load:
    """Keeps the connections busy, or at a fixed rate, and records latencies."""

    def __init__(self, requests: list[bytes], depth: int, requests_s: float) -> None:
        self._requests = requests
        self._depth = depth
        self._requests_s = requests_s
        self._next = 0
        self._expected: bytes | None = None
        self._waits = asyncio.get_running_loop().create_future()
        self._left = 0
        self._is_busy = False
        self.times_s: list[float] = []
        self.lines: list[Line] = []

    def next_frame(self) -> bytes:
        frame = self._requests[self._next]
        self._next = (self._next + 1) % len(self._requests)
        return frame

    def answered(self, line: Line, answer: bytes, took_s: float) -> None:
        if answer != self._expected:
            self._look_at(answer)
        self.times_s.append(took_s)
        if self._is_busy:
            line.send(time.perf_counter())
        elif self._left:
            self._left -= 1
            if not self._left and not self._waits.done():
                self._waits.set_result(None)

    def _look_at(self, answer: bytes) -> None:
        _, position = read_response_header(Api.OFFSET_COMMIT, VERSION, memoryview(answer))
        said = decode(OffsetCommitResponse, VERSION, memoryview(answer), position)
        codes = {each.error_code for topic in said.topics for each in topic.partitions}
        if any(codes):
            self.fail(Refused(", ".join(sorted(each.name for each in codes))))
        self._expected = answer

    def fail(self, error: Exception) -> None:
        if not self._waits.done():
            self._waits.set_exception(error)

    async def each_group_once(self) -> None:
        """Commits once for every group, so that all groups exist."""
        total = len(self._requests)
        for begun in range(0, total, 100):
            count = min(100, total - begun)
            self._left = count
            self._waits = asyncio.get_running_loop().create_future()
            for number in range(count):
                self.lines[number % len(self.lines)].send(time.perf_counter())
            await self._waits
        self.times_s.clear()

    async def run(self, seconds: float) -> None:
        self._waits = asyncio.get_running_loop().create_future()
        if self._requests_s > 0:
            await self._keep_pace(seconds)
            return
        self._is_busy = True
        for line in self.lines:
            for _ in range(self._depth):
                line.send(time.perf_counter())
        await self._until(time.perf_counter() + seconds)
        self._is_busy = False

    async def _keep_pace(self, seconds: float) -> None:
        began_s = time.perf_counter()
        number = 0
        while (now_s := time.perf_counter() - began_s) < seconds:
            while number / self._requests_s <= now_s:
                self.lines[number % len(self.lines)].send(began_s + number / self._requests_s)
                number += 1
            await self._until(began_s + number / self._requests_s)

    async def _until(self, when_s: float) -> None:
        """Sleeps until a time; raises a failure that occurs meanwhile."""
        await asyncio.wait([self._waits], timeout=max(0.0, when_s - time.perf_counter()))
        if self._waits.done():
            self._waits.result()


async def measure(
    address: str,
    topic: str,
    groups: Sequence[str],
    partitions: int,
    seconds: float,
    lines: int,
    depth: int,
    requests_s: float,
) -> dict[str, Any]:
    """Commits for the given time and returns the figures."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    load = Load(frames(topic, groups, partitions, 1), depth, requests_s)
    try:
        for _ in range(lines):
            load.lines.append((await loop.create_connection(lambda: Line(load), host, int(port)))[1])
        await load.each_group_once()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await load.run(seconds)
    finally:
        for line in load.lines:
            line.sent.clear()
            line.transport.abort()
    took_s = time.perf_counter() - began_s
    times_ms = sorted(1000 * each for each in load.times_s) or [0.0]
    return {
        "requests_s": len(load.times_s) / took_s,
        "offsets_s": len(load.times_s) * partitions / took_s,
        "p50_ms": times_ms[len(times_ms) // 2],
        "p99_ms": times_ms[len(times_ms) * 99 // 100],
        "most_ms": times_ms[-1],
        "load_cpu": (time.process_time() - began_cpu_s) / took_s,
    }


def main() -> None:
    address, topic, groups, partitions, seconds, lines, depth, requests_s, shard, shards = sys.argv[1:]
    names = group_ids(int(groups), int(shard), int(shards))
    shape = int(partitions), float(seconds), int(lines), int(depth), float(requests_s)
    found = asyncio.run(measure(address, topic, names, *shape))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
