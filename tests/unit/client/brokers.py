"""Brokers in memory for clients in the simulator: leaders, logs, producer sequences and injected faults.

Requests on a connection are answered one at a time, as by a real broker. `faults` maps an API to the faults of its next
requests, in order; None lets a request pass.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.model.ports import Connection
from penstock.records.builder import BatchBuilder
from penstock.records.header import BatchView, patch
from penstock.records.rows import Record, rows
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions
from penstock.simulator.world import World
from penstock.wire.api import Api, request_class
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.frames import FrameReader
from penstock.wire.headers import read_request_header, read_start, response_frame
from penstock.wire.messages import api_versions, create_topics, fetch, init_producer_id, list_offsets, metadata, produce

T = TypeVar("T")

PORT = 9092
SERVED = (
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.API_VERSIONS,
    Api.CREATE_TOPICS,
    Api.INIT_PRODUCER_ID,
)
REMEMBERED = 5


class Fault(Enum):
    CLOSE = "the connection ends before the request is looked at"
    CLOSE_AFTER = "the request is carried out, but its answer never leaves"
    SILENCE = "the request is carried out, but nothing is said"


@dataclass
class PartitionLog:
    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)
    """Maps a producer id to its epoch and its latest batches: first sequence, last sequence, offset."""

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        batch = BatchView(data)
        assert batch.is_intact
        assert batch.magic == 2
        if batch.has_producer_id:
            code, offset = self._admit(batch)
            if code is not None:
                return code, offset
        kept = bytearray(data)
        patch(kept, self.end, self.epoch)
        self.batches.append(bytes(kept))
        self.end += batch.last_offset_delta + 1
        return ErrorCode.NONE, self.end - batch.last_offset_delta - 1

    def _admit(self, batch: BatchView) -> tuple[ErrorCode | None, int]:
        epoch, latest = self.producers.get(batch.producer_id, (-1, deque(maxlen=REMEMBERED)))
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            if epoch >= 0 and batch.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            latest = deque(maxlen=REMEMBERED)
        for first, last, offset in latest:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, offset
        if latest and batch.base_sequence != (latest[-1][1] + 1) & 0x7FFFFFFF:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        latest.append((batch.base_sequence, batch.last_sequence, self.end))
        self.producers[batch.producer_id] = (batch.producer_epoch, latest)
        return None, -1

    def records(self) -> list[Record]:
        return [record for data in self.batches for record in rows(BatchView(data), 1 << 30)]


class Brokers:
    """All brokers of a cluster, with their shared topics and faults."""

    def __init__(self, count: int = 1) -> None:
        self.names = [f"broker-{number}" for number in range(count)]
        self.topics: dict[str, tuple[bytes, list[PartitionLog]]] = {}
        self.faults: dict[Api, deque[Fault | ErrorCode | None]] = {}
        self.seen: list[tuple[int, Api, int]] = []
        """Every request: broker, API, version."""
        self.requests: list[tuple[float, Request]] = []
        self.served: tuple[Api, ...] = SERVED
        self.newest: dict[Api, int] = {}
        """The highest version served, by API."""
        self.produce_delay_s = 0.0
        self.creates_topics = False
        self._producer_ids = 1000
        self.world: World

    def add_topic(self, name: str, partitions: int = 1) -> list[PartitionLog]:
        logs = [PartitionLog(number % len(self.names)) for number in range(partitions)]
        self.topics[name] = (f"{name:<16}"[:16].encode(), logs)
        return logs

    def fail(self, api: Api, *faults: Fault | ErrorCode | None) -> None:
        self.faults.setdefault(api, deque()).extend(faults)

    def move(self, topic: str, partition: int, leader: int) -> None:
        log = self.topics[topic][1][partition]
        log.leader = leader
        log.epoch += 1

    # --- serving

    def main_of(self, node_id: int) -> Callable[[Ports], Awaitable[None]]:
        async def main(ports: Ports) -> None:
            listener = await ports.network.listen("", PORT)
            while True:
                connection = await listener.accept()
                asyncio.get_running_loop().create_task(self._serve(node_id, connection))

        return main

    async def _serve(self, node_id: int, connection: Connection) -> None:
        frames = FrameReader(100 * 1024 * 1024)
        try:
            while count := await connection.receive_into(frames.writable()):
                frames.received(count)
                for frame in frames.frames():
                    await self._answer(node_id, connection, frame)
        except ConnectionError:
            pass
        finally:
            connection.close()

    async def _answer(self, node_id: int, connection: Connection, frame: memoryview) -> None:
        start = read_start(frame)
        api = Api(start.key)
        self.seen.append((node_id, api, start.version))
        if start.version > self.newest.get(api, 99):
            assert api is Api.API_VERSIONS, f"{api.name} v{start.version} is not served"
            refusal = api_versions.ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._versions()
            )
            await connection.send([response_frame(refusal, 0, start.correlation_id)])
            return
        _, position = read_request_header(api, start.version, frame)
        request = decode(request_class(api), start.version, frame, position)
        self.requests.append((self.world.loop.time(), request))
        queue = self.faults.get(api)
        fault = queue.popleft() if queue else None
        if fault is Fault.CLOSE:
            connection.close()
            return
        response = await self.handle(node_id, start.version, request, fault if isinstance(fault, ErrorCode) else None)
        if fault is Fault.CLOSE_AFTER:
            connection.close()
        elif fault is not Fault.SILENCE and response is not None:
            await connection.send([response_frame(response, start.version, start.correlation_id)])

    async def handle(self, node_id: int, version: int, request: Request, code: ErrorCode | None) -> Response | None:
        """Returns the broker's response, with `code` where the response has a place for it."""
        match request:
            case api_versions.ApiVersionsRequest():
                return api_versions.ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=self._versions())
            case metadata.MetadataRequest():
                return self._metadata(request, code)
            case init_producer_id.InitProducerIdRequest():
                self._producer_ids += 1
                return init_producer_id.InitProducerIdResponse(
                    throttle_time_ms=0,
                    error_code=code or ErrorCode.NONE,
                    producer_id=self._producer_ids,
                    producer_epoch=0,
                )
            case create_topics.CreateTopicsRequest():
                for topic in request.topics:
                    self.add_topic(topic.name, max(1, topic.num_partitions))
                made = [
                    create_topics.CreatableTopicResult(
                        name=topic.name, error_code=code or ErrorCode.NONE, error_message=None
                    )
                    for topic in request.topics
                ]
                return create_topics.CreateTopicsResponse(throttle_time_ms=0, topics=made)
            case produce.ProduceRequest():
                await asyncio.sleep(self.produce_delay_s)
                response = self._produce(node_id, version, request, code)
                return response if request.acks else None
            case list_offsets.ListOffsetsRequest():
                return self._list_offsets(node_id, request, code)
            case fetch.FetchRequest():
                return await self._fetch(node_id, version, request, code)
        raise AssertionError(f"nobody serves {type(request).__name__}")

    def _versions(self) -> list[api_versions.ApiVersion]:
        found = []
        for api in self.served:
            versions = request_class(api).VERSIONS
            newest = min(versions.last, self.newest.get(api, versions.last))
            found.append(api_versions.ApiVersion(api_key=api, min_version=versions.first, max_version=newest))
        return found

    def _metadata(self, request: metadata.MetadataRequest, code: ErrorCode | None) -> metadata.MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            assert name is not None
            if name not in self.topics and self.creates_topics and request.allow_auto_topic_creation:
                self.add_topic(name)
                code = ErrorCode.LEADER_NOT_AVAILABLE
            if name not in self.topics or code is not None:
                refused = metadata.MetadataResponseTopic(
                    error_code=code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=()
                )
                topics.append(refused)
                continue
            topic_id, logs = self.topics[name]
            partitions = [
                metadata.MetadataResponsePartition(
                    error_code=ErrorCode.NONE,
                    partition_index=number,
                    leader_id=log.leader,
                    leader_epoch=log.epoch,
                    replica_nodes=[log.leader],
                    isr_nodes=[log.leader],
                )
                for number, log in enumerate(logs)
            ]
            topics.append(
                metadata.MetadataResponseTopic(
                    error_code=ErrorCode.NONE, name=name, topic_id=topic_id, partitions=partitions
                )
            )
        brokers = [
            metadata.MetadataResponseBroker(node_id=number, host=name, port=PORT)
            for number, name in enumerate(self.names)
        ]
        return metadata.MetadataResponse(brokers=brokers, topics=topics, controller_id=0)

    def _find(self, node_id: int, name: str, topic_id: bytes, partition: int) -> PartitionLog | ErrorCode:
        for known, (known_id, logs) in self.topics.items():
            if known == name or (not name and known_id == topic_id):
                log = logs[partition]
                return log if log.leader == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID

    def _produce(
        self, node_id: int, version: int, request: produce.ProduceRequest, code: ErrorCode | None
    ) -> produce.ProduceResponse:
        topics = []
        for topic in request.topic_data:
            parts = []
            for part in topic.partition_data:
                log = self._find(node_id, topic.name if version < 13 else "", topic.topic_id, part.index)
                if code is not None or isinstance(log, ErrorCode):
                    answer = (code or ErrorCode.NONE) if not isinstance(log, ErrorCode) else log
                    offset = -1
                else:
                    answer, offset = log.append(bytes(part.records or b""))
                parts.append(produce.PartitionProduceResponse(index=part.index, error_code=answer, base_offset=offset))
            topics.append(
                produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)
            )
        return produce.ProduceResponse(responses=topics)

    def _list_offsets(
        self, node_id: int, request: list_offsets.ListOffsetsRequest, code: ErrorCode | None
    ) -> list_offsets.ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self._find(node_id, topic.name, b"", part.partition_index)
                offset = -1
                if not isinstance(log, ErrorCode):
                    offset = {-1: log.end, -2: log.start}.get(part.timestamp, -1)
                    if part.timestamp >= 0:
                        later = [each.offset for each in log.records() if each.timestamp_ms >= part.timestamp]
                        offset = min(later, default=-1)
                error = code or (log if isinstance(log, ErrorCode) else ErrorCode.NONE)
                parts.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, error_code=error, offset=offset
                    )
                )
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return list_offsets.ListOffsetsResponse(topics=topics)

    async def _fetch(
        self, node_id: int, version: int, request: fetch.FetchRequest, code: ErrorCode | None
    ) -> fetch.FetchResponse:
        deadline = self.world.loop.time() + request.max_wait_ms / 1000
        while True:
            response, size = self._fetch_now(node_id, version, request, code)
            if size or code or self.world.loop.time() >= deadline:
                return response
            await asyncio.sleep(0.01)

    def _fetch_now(
        self, node_id: int, version: int, request: fetch.FetchRequest, code: ErrorCode | None
    ) -> tuple[fetch.FetchResponse, int]:
        size = 0
        topics = []
        for topic in request.topics:
            parts = []
            for part in topic.partitions:
                log = self._find(node_id, topic.topic if version < 13 else "", topic.topic_id, part.partition)
                error, data, end, aborted = code, b"", -1, None
                if isinstance(log, ErrorCode):
                    error = error or log
                else:
                    end = log.end
                    if not log.start <= part.fetch_offset <= log.end:
                        error = error or ErrorCode.OFFSET_OUT_OF_RANGE
                    later = [each for each in log.batches if BatchView(each).last_offset >= part.fetch_offset]
                    data = _first_bytes(
                        later, min(part.partition_max_bytes, request.max_bytes - size), is_first=not size
                    )
                    if request.isolation_level:
                        aborted = [
                            fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
                            for producer_id, first in log.aborted
                        ]
                size += len(data) + bool(error)
                parts.append(
                    fetch.PartitionData(
                        partition_index=part.partition,
                        error_code=error or ErrorCode.NONE,
                        high_watermark=end,
                        last_stable_offset=end,
                        log_start_offset=0,
                        aborted_transactions=aborted,
                        records=b"" if error else data,
                    )
                )
            topics.append(fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts))
        return fetch.FetchResponse(throttle_time_ms=0, responses=topics), size


def _first_bytes(batches: Iterable[bytes], bytes_max: int, *, is_first: bool) -> bytes:
    """Returns at most `bytes_max` bytes, the last batch cut off as Kafka does; a response's first batch stays whole."""
    data = b""
    for batch in batches:
        is_whole = not data and is_first
        data += batch if is_whole else batch[: max(0, bytes_max - len(data))]
        if len(data) >= bytes_max:
            break
    return data


def play(
    brokers: Brokers,
    story: Callable[[ClientPorts], Awaitable[T]],
    *,
    seed: int = 1,
    options: FaultOptions | None = None,
    limit_s: float = 600.0,
) -> T:
    """Runs a client's story in a world with these brokers."""
    with World(seed, options) as world:
        brokers.world = world
        for number, name in enumerate(brokers.names):
            world.add(name, brokers.main_of(number))
            world.start(name)
        told: asyncio.Future[T] = world.loop.create_future()

        async def main(ports: Ports) -> None:
            try:
                result = await story(ClientPorts(ports.network, ports.clock, ports.entropy))
            except Exception as error:
                told.set_exception(error)
            else:
                told.set_result(result)

        world.add("client", main)
        world.start("client")
        return world.run_until(told, limit_s=limit_s)


def append(log: PartitionLog, *timestamps: int) -> None:
    builder = BatchBuilder()
    for each in timestamps:
        builder.append(None, b"x", (), each)
    log.append(bytes(builder.build()))
