"""Produce and Fetch in microseconds per request, without sockets: from the frame to the buffers of the response.

    python -m benchmarks.micro.bench_handlers [--json] [--profile produce|fetch1|fetch100|idle]

Produce is compared with appending the same batch to a log, Fetch with the reads from the logs alone.
"""

import asyncio
import cProfile
import pstats
import sys
from collections.abc import Callable
from typing import Any, cast

from benchmarks.micro.timing import Row, compare, report
from penstock.host.clock import HostClock
from penstock.host.entropy import HostEntropy
from penstock.host.memory import MemoryDisk
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.settings import Durability, LogSettings
from penstock.model.ports import FileSlice
from penstock.records.builder import BatchBuilder
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.connections.serving import Call
from penstock.server.handlers.records.fetch import FetchHandler
from penstock.server.handlers.records.produce import ProduceHandler
from penstock.server.loop.deadlines import Deadlines
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Partitions
from penstock.server.partitions.sequence_gaps import SequenceGaps
from penstock.wire.api import Api
from penstock.wire.codec import decode_request, encode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH_BYTES = 16 * 1024
SETTINGS = LogSettings(durability=Durability.REPLICATED, retention_ms=None, segment_bytes=256 * 1024 * 1024)
TOPIC_ID = b"bench".ljust(16, b"\0")
PRODUCE_VERSION, FETCH_VERSION = 12, 17
MANY = 1_000


class BenchNode:
    """The two handlers, without the collaborators that the requests measured here never reach."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.partitions = Partitions()
        self.fetch_sessions = FetchSessions(HostEntropy())
        clock, missing = HostClock(), cast("Any", None)
        self.producing = ProduceHandler(self.partitions, SequenceGaps(), Deadlines(), missing, missing, clock)
        self.fetching = FetchHandler(self.partitions, missing, self.fetch_sessions, missing, missing, clock)


def a_batch() -> bytearray:
    builder = BatchBuilder()
    while builder.size_bytes < BATCH_BYTES - 120:
        builder.append(b"key-12345678", b"v" * 90, timestamp_ms=HostClock().wall_ms())
    return builder.build()


async def a_node() -> BenchNode:
    directory = await open_directory(MemoryDisk(), cluster_id="c", node_id=1, entropy=HostEntropy(), now_ms=0)
    node = BenchNode(directory)
    for index in range(MANY):
        log = await directory.create("bench", TOPIC_ID.hex(), index, SETTINGS)
        partition = Partition("bench", TOPIC_ID, index, log, 0)
        node.partitions.add(partition)
        if index < MANY // 2:
            partition.append(a_batch(), now_ms=HostClock().wall_ms(), rules=partition.rules)
    return node


def call(api: int, version: int) -> Call:
    return Call(Api(api), version, 7, "me", "peer:1", "local:2")


def producing(node: BenchNode) -> tuple[Callable[[], object], Callable[[], object]]:
    batch = a_batch()
    request = ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="bench", partition_data=[PartitionProduceData(index=1, records=batch)])],
    )
    frame = memoryview(encode(request, PRODUCE_VERSION))
    offset_at = bytes(frame).index(bytes(batch))
    log = node.directory.logs["bench-0"]
    produce = node.producing.produce

    def handle() -> object:
        frame[offset_at : offset_at + 8] = bytes(8)  # a client sends base offset 0
        return produce(call(0, PRODUCE_VERSION), frame, 0)

    def bare() -> object:
        batch[0:8] = bytes(8)
        return log.append(memoryview(batch), leader_epoch=0, now_ms=HostClock().wall_ms())

    return handle, bare


def fetching(node: BenchNode, first: int, count: int) -> tuple[Callable[[], object], Callable[[], object]]:
    wanted = [FetchPartition(partition=first + n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(count)]
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=wanted)]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=topics, session_epoch=-1)
    frame = memoryview(encode(request, FETCH_VERSION))
    logs = [node.directory.logs[f"bench-{first + n}"] for n in range(count)]
    fetch = node.fetching.fetch

    def handle() -> object:
        answer = fetch(decode_request(FetchRequest, FETCH_VERSION, frame), call(1, FETCH_VERSION))
        assert isinstance(answer, list)
        for buffer in answer:
            if isinstance(buffer, FileSlice):
                buffer.release()
        return answer

    def bare() -> object:
        for log in logs:
            part = log.read(0, 1 << 20, limit=log.high_watermark)
            assert part is not None
            part.release()
        return None

    return handle, bare


def idling(node: BenchNode) -> tuple[Callable[[], object], Callable[[], object]]:
    """An incremental fetch session of many partitions, one of which has records; compared with a full request."""
    wanted = [
        FetchPartition(partition=MANY // 2 + n - 1, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(MANY // 2)
    ]
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=wanted)]
    fetch = node.fetching.fetch

    def ask(session_id: int, epoch: int, asked: list[FetchTopic]) -> object:
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=asked, session_id=session_id, session_epoch=epoch)
        frame = memoryview(encode(request, FETCH_VERSION))
        answer = fetch(decode_request(FetchRequest, FETCH_VERSION, frame), call(1, FETCH_VERSION))
        assert isinstance(answer, list)
        for buffer in answer:
            if isinstance(buffer, FileSlice):
                buffer.release()
        return answer

    ask(0, 0, topics)
    (session_id,) = node.fetch_sessions._sessions
    epochs = iter(range(1, 1 << 30))
    return lambda: ask(session_id, next(epochs), []), lambda: ask(0, -1, topics)


async def measure() -> list[Row]:
    node = await a_node()
    return [
        compare("produce, 1 × 16 KiB, acks=1, replicated", *producing(node), "bare append"),
        compare("fetch, 1 partition", *fetching(node, 10, 1), "bare look-up"),
        compare("fetch, 100 partitions", *fetching(node, 10, 100), "bare look-ups"),
        compare("fetch, session of 500, 1 with records", *idling(node), "full request"),
    ]


async def profile(which: str) -> None:
    node = await a_node()
    work = {
        "produce": lambda: producing(node),
        "fetch1": lambda: fetching(node, 10, 1),
        "fetch100": lambda: fetching(node, 10, 100),
        "idle": lambda: idling(node),
    }[which]()[0]
    work()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(3_000 if which in ("produce", "fetch1") else 100):
        work()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    if "--profile" in sys.argv:
        asyncio.run(profile(sys.argv[sys.argv.index("--profile") + 1]))
    else:
        report(asyncio.run(measure()))


if __name__ == "__main__":
    main()
