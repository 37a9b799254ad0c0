"""A node with only the parts that handlers need: real logs on a disk in memory, on virtual time. Requests for it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, TypeVar, cast

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log.directory import DataDirectory, open_directory
from penstock.log.log import Log
from penstock.log.settings import Durability, LogSettings
from penstock.metadata.records import BrokerEndpoint
from penstock.model.errors import ErrorCode, ProtocolError, TornBatch
from penstock.model.ports import FileSlice
from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES, Rules
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import batches
from penstock.replication.fetch_sessions import FetchSessions
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.response_order import release
from penstock.server.connections.serving import Answer, Buffers, Call, Client, Later, Unfinished
from penstock.server.handlers.records.delete_records import DeleteRecordsHandler
from penstock.server.handlers.records.describe_log_dirs import DescribeLogDirsHandler
from penstock.server.handlers.records.describe_producers import DescribeProducersHandler
from penstock.server.handlers.records.fetch import FetchHandler
from penstock.server.handlers.records.init_producer_id import InitProducerIdHandler
from penstock.server.handlers.records.list_offsets import ListOffsetsHandler
from penstock.server.handlers.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from penstock.server.handlers.records.produce import ProduceHandler
from penstock.server.loop.deadlines import Deadlines
from penstock.server.partitions.group_commit import GroupCommit
from penstock.server.partitions.opening import WorkerOpener
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Leader, Partitions
from penstock.server.partitions.sequence_gaps import SequenceGaps
from penstock.server.partitions.upkeep_loop import Upkeep
from penstock.simulator.clock import SimulatedClock
from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.loop import new_loop
from penstock.simulator.workers import SimulatedWorkers
from penstock.wire.api import Api, response_class
from penstock.wire.codec import decode, encode
from penstock.wire.declare import Request, Response
from penstock.wire.headers import read_response_header
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

T = TypeVar("T")

ENDPOINTS = (
    BrokerEndpoint(name="OTHER", host="other", port=1, security_protocol=0),
    BrokerEndpoint(name="PLAINTEXT", host="b", port=9092, security_protocol=0),
)
"""The addresses of leaders elsewhere."""

REPLICATED = LogSettings(durability=Durability.REPLICATED, retention_ms=None, index_interval_bytes=200)
FSYNC = LogSettings(durability=Durability.FSYNC, retention_ms=None, index_interval_bytes=200)
FROM_COORDINATOR = Rules(is_from_client=False)
NO_LIMIT = 1 << 30


class CountedIds:
    """Returns producer ids from 100 on, or fails."""

    def __init__(self) -> None:
        self.given = 99
        self.failure: ProtocolError | None = None

    async def next(self) -> int:
        await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        self.given += 1
        return self.given


class BareNode:
    """The node; created by `running`."""

    directory: DataDirectory
    upkeep: Upkeep

    def __init__(self, disk: LossyDisk) -> None:
        self.clock = SimulatedClock(asyncio.get_running_loop().time)
        self.entropy = SimulatedEntropy(Random(1))
        self.disk = disk
        self.leaders_elsewhere: dict[int, Leader] = {}
        """Leaders by partition number, for any topic."""
        self.listener = "PLAINTEXT"
        """The listener on which requests arrive."""
        self.partitions = Partitions(lambda _topic, index: self.leaders_elsewhere.get(index))
        self.sequence_gaps = SequenceGaps()
        self.deadlines = Deadlines()
        self.is_in_touch = True
        self.fetch_sessions = FetchSessions(self.entropy)
        self.producer_ids = CountedIds()
        self.data_path = "data/of/node-1"
        self.workers = SimulatedWorkers(cast("Any", asyncio.get_running_loop()), Random(1))
        self.opener = WorkerOpener(self.workers)
        self.codec = CodecWorker(self.workers)

    async def start(self) -> None:
        self.directory = await open_directory(
            self.disk, cluster_id="c", node_id=1, entropy=self.entropy, now_ms=self.clock.wall_ms()
        )
        self.upkeep = Upkeep(self.directory, self.partitions, self.clock, asyncio.Lock())
        self.rounds = GroupCommit(self.directory)
        self.rounds.covered.connect(self.on_round)
        self.committing = asyncio.get_running_loop().create_task(self.rounds.run())

    async def stop(self) -> None:
        self.rounds.stop()
        await self.committing
        self.deadlines.stop()

    def on_round(self, covered: Sequence[Log]) -> None:
        for log in covered:
            partition = self.partitions.of_log(log.identity.number)
            if partition is not None:
                partition.advance()

    async def add(
        self, topic: str = "t", index: int = 0, settings: LogSettings = REPLICATED, *, epoch: int = 3, **options: Any
    ) -> Partition:
        """Adds a partition that this node leads."""
        log = await self.directory.create(topic, topic_id(topic).hex(), index, settings)
        await self.directory.begin_epoch(log, epoch)
        partition = Partition(topic, topic_id(topic), index, log, epoch, **options)
        self.partitions.add(partition)
        return partition

    def call(self, api: int, version: int, correlation_id: int = 7, *, request_bytes: int = 0) -> Call:
        client = Client(listener=self.listener)
        return Call(Api(api), version, correlation_id, "me", "peer:1", "local:2", client, request_bytes)

    async def ask(self, handler: Callable[[Any, Call], Awaitable[Any]], request: Request, version: int) -> Any:
        """Calls a plain handler, through the codec in both directions."""
        request = decode(type(request), version, encode(request, version))
        response: Response = await handler(request, self.call(request.KEY, version))
        return decode(type(response), version, encode(response, version))

    async def begin(self, request: ProduceRequest | FetchRequest, version: int, correlation_id: int = 7) -> Answer:
        """Runs the first stage of an overlapping handler."""
        body = encode(request, version)
        call = self.call(request.KEY, version, correlation_id, request_bytes=len(body))
        if isinstance(request, ProduceRequest):
            answer = self.producing.produce(call, memoryview(bytearray(b"head") + body), 4)
        else:
            answer = self.fetching.fetch(decode(FetchRequest, version, body), call)
        return await answer.rest if isinstance(answer, Unfinished) else answer

    async def produce(self, request: ProduceRequest, version: int = 12) -> ProduceResponse:
        return cast("ProduceResponse", read_answer(await finish(await self.begin(request, version)), 0, version))

    async def fetch(self, request: FetchRequest, version: int = 12) -> FetchResponse:
        """Returns the response; its slices are released, and no other file may be pinned."""
        response = cast("FetchResponse", read_answer(await finish(await self.begin(request, version)), 1, version))
        assert self.pins == 0
        return response

    def append(self, partition: Partition, count: int = 1, **options: Any) -> int:
        """Appends a batch without the handlers, and returns its base offset."""
        data = a_batch(count, **options)
        rules = FROM_COORDINATOR if options.get("is_control") else DEFAULT_RULES
        return partition.append(data, now_ms=self.clock.wall_ms(), rules=rules).base_offset

    def end_transaction(self, partition: Partition, kind: ControlType, producer_id: int) -> None:
        marker = marker_batch(
            EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=self.clock.wall_ms()
        )
        partition.append(marker, now_ms=self.clock.wall_ms(), rules=FROM_COORDINATOR)

    # --- handlers, built from the current parts -----------------------------------------------------------------------

    @property
    def producing(self) -> ProduceHandler:
        return ProduceHandler(self.partitions, self.sequence_gaps, self.deadlines, self.opener, self.codec, self.clock)

    @property
    def fetching(self) -> FetchHandler:
        """The fetch handler; without controller and replicas it serves consumers that name no rack."""
        missing: Any = None
        controller, replicas = getattr(self, "controller", missing), getattr(self, "replicas", missing)
        return FetchHandler(self.partitions, replicas, self.fetch_sessions, controller, self.codec, self.clock)

    @property
    def offsets(self) -> ListOffsetsHandler:
        return ListOffsetsHandler(self.partitions, self.opener, lease=self)

    @property
    def epochs(self) -> OffsetForLeaderEpochHandler:
        return OffsetForLeaderEpochHandler(self.partitions)

    @property
    def deletions(self) -> DeleteRecordsHandler:
        return DeleteRecordsHandler(self.partitions, self.upkeep)

    @property
    def producers(self) -> DescribeProducersHandler:
        return DescribeProducersHandler(self.partitions)

    @property
    def log_dirs(self) -> DescribeLogDirsHandler:
        return DescribeLogDirsHandler(self.directory, self.data_path)

    @property
    def ids(self) -> InitProducerIdHandler:
        return InitProducerIdHandler(self.producer_ids)

    # --- leak checks --------------------------------------------------------------------------------------------------

    @property
    def pins(self) -> int:
        return sum(cast("Any", file)._pins for file in self.directory.pool._files.values())

    @property
    def watchers(self) -> int:
        return sum(len(partition.watchers) for partition in self.partitions)


@contextmanager
def _world() -> Iterator[Any]:
    loop = new_loop()
    try:
        yield loop
    finally:
        loop.close()


def running(story: Callable[[BareNode], Coroutine[Any, Any, T]], *, sync_s: float = 0.0) -> T:
    """Runs a story on virtual time; a sync of the disk takes `sync_s`."""

    async def main() -> T:
        async def delay(_operation: str, _path: str) -> None:
            await asyncio.sleep(sync_s)

        disk = LossyDisk(MemoryDisk(), Random(1), Faults(), delay=delay if sync_s else None)
        node = BareNode(disk)
        await node.start()
        try:
            result = await story(node)
            assert len(node.deadlines) == 0
        finally:
            await node.stop()
        assert node.pins == 0
        assert node.watchers == 0
        return result

    with _world() as loop:
        result = loop.run_until_complete(main())
        assert not [timer for _, _, timer in loop._timers if not timer.cancelled()], "a timer was forgotten"
        return cast("T", result)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\xee")


def a_batch(
    count: int = 1, *, value: bytes = b"v" * 20, timestamp_ms: int = 1_800_000_000_000, **options: Any
) -> bytearray:
    builder = BatchBuilder(**options)
    for _ in range(count):
        builder.append(b"k", value, timestamp_ms=timestamp_ms)
    return builder.build()


def to_produce(
    *parts: tuple[str, int, bytearray | bytes | None],
    acks: int = -1,
    timeout_ms: int = 1_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id(topic),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
            for topic, index, records in parts
        ],
    )


def only(response: ProduceResponse) -> PartitionProduceResponse:
    """Returns the only partition of a response."""
    (topic,) = response.responses
    (part,) = topic.partition_responses
    return part


async def produced(answer: Answer, version: int = 12) -> PartitionProduceResponse:
    """Awaits an answer, and returns its only partition."""
    return only(cast("ProduceResponse", read_answer(await finish(answer), 0, version)))


async def fetched(answer: Answer, version: int = 12) -> FetchResponse:
    """Awaits an answer."""
    return cast("FetchResponse", read_answer(await finish(answer), 1, version))


def part(index: int = 0, offset: int = 0, **options: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, **{"partition_max_bytes": NO_LIMIT} | options)


def to_fetch(*parts: FetchPartition, topic: str = "t", **options: Any) -> FetchRequest:
    topics = [FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=parts)] if parts else []
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": NO_LIMIT, "topics": topics}
    return FetchRequest(**defaults | options)


def parts_of(response: FetchResponse) -> dict[int, PartitionData]:
    return {part.partition_index: part for topic in response.responses for part in topic.partitions}


def offsets(found: PartitionData) -> list[int]:
    """Returns the base offsets of the complete batches; the last batch may be cut off."""
    given: list[int] = []
    with suppress(TornBatch):
        for batch in batches(bytes(found.records or b"")):
            given.append(batch.base_offset)  # noqa: PERF401 - what came before the tear counts
    return given


async def finish(answer: Answer) -> Buffers:
    """Runs the second stage."""
    if answer is None:
        raise AssertionError("no answer")
    if isinstance(answer, Later):
        future: asyncio.Future[Buffers] = asyncio.get_running_loop().create_future()

        def done(buffers: Buffers) -> None:
            if future.cancelled():  # `cancel` follows
                release(buffers)
            else:
                future.set_result(buffers)

        answer.begin(done, future.set_exception)
        try:
            return await future
        except asyncio.CancelledError:
            answer.cancel()
            raise
    return await answer if isinstance(answer, Awaitable) else answer


def read_answer(buffers: Buffers, key: int, version: int, correlation_id: int = 7) -> Response:
    """Decodes a whole frame as a client does, and releases its slices as the sender does."""
    pieces = []
    for buffer in buffers:
        pieces.append(buffer.read() if isinstance(buffer, FileSlice) else bytes(buffer))
        if isinstance(buffer, FileSlice):
            buffer.release()
    frame = memoryview(b"".join(pieces))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, position = read_response_header(Api(key), version, frame[4:])
    assert header.correlation_id == correlation_id
    return decode(response_class(Api(key)), version, frame[4:], position)


NONE = ErrorCode.NONE


BATCH_BYTES = len(a_batch())
SMALL_SEGMENTS = LogSettings(
    durability=Durability.REPLICATED, retention_ms=None, index_interval_bytes=100, segment_bytes=BATCH_BYTES * 3
)


def transactional(producer_id: int, sequence: int = 0) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }
