"""A minimal client: one blocking connection, our wire code, and record batches in wire format.

It retries nothing, so that a test sees exactly what a broker answers; it waits only for new topics and late records.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from penstock.model.errors import ErrorCode, TornBatch
from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.header import BatchView, batches
from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.declare import Request, Response
from penstock.wire.frames import FrameReader
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

R = TypeVar("R", bound=Response)

CLIENT_ID = "penstock-raw-client"
TIMEOUT_S = 30.0
POLL_S = 0.01
API_VERSIONS_VERSION = 4
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Refused(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code


class Topic(NamedTuple):
    """A topic's name and id: requests carry one or the other, depending on their version."""

    name: str
    topic_id: bytes


class RawClient:
    """One connection to one broker. Use it as a context manager."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader(DEFAULT_LIMITS.frame_bytes_max)
        self._correlation_id = 0
        self.served: Mapping[int, range] = {}
        """The versions that the broker serves, by API key."""
        try:
            self.served = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def ask(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Sends a request and returns the response; by default in the newest version that both sides support."""
        if version is None:
            version = self.newest(type(request))
        self._correlation_id += 1
        self._socket.sendall(request_frame(request, version, self._correlation_id, CLIENT_ID))
        frame = self._receive()
        header, position = read_response_header(Api(request.KEY), version, frame)
        assert header.correlation_id == self._correlation_id
        return decode(answer, version, frame, position)

    def newest(self, request: type[Request]) -> int:
        """The newest version of an API that both sides support."""
        return min(request.VERSIONS.last, self.served[request.KEY].stop - 1)

    def _receive(self) -> memoryview:
        while True:
            count = self._socket.recv_into(self._frames.writable())
            if not count:
                raise ConnectionError("the broker has closed the connection")
            self._frames.received(count)
            if frames := self._frames.frames():
                (frame,) = frames
                return frame

    def _ask_versions(self) -> dict[int, range]:
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        response = self.ask(request, ApiVersionsResponse, API_VERSIONS_VERSION)
        _check(response.error_code)
        return {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    # --- the requests that most tests send ----------------------------------------------------------------------------

    def metadata(self, *topics: str) -> MetadataResponse:
        """Metadata of the brokers and of the named topics."""
        asked = [MetadataRequestTopic(name=name) for name in topics]
        return self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse)

    def topic(self, name: str) -> MetadataResponseTopic:
        """Metadata of one topic; raises if the topic does not exist."""
        (found,) = self.metadata(name).topics
        _check(found.error_code)
        return found

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Topic:
        """Creates a topic with one replica, and waits until each of its partitions serves requests."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
        )
        (made,) = self.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse).topics
        _check(made.error_code, made.error_message)
        topic = Topic(name, made.topic_id)
        for partition in range(partitions):
            _wait_until(partial(self._serves, topic, partition), f"partition {partition} of {name} is up")
        return topic

    def _serves(self, topic: Topic, partition: int) -> bool:
        try:
            self.fetch(topic, partition, 0)
        except Refused as refused:
            if refused.code not in NOT_YET:
                raise
            return False
        return True

    def produce(
        self, topic: Topic, partition: int, batch: bytes | bytearray, version: int | None = None
    ) -> PartitionProduceResponse:
        """Produces one batch unchanged, with acks=all."""
        part = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[part])],
        )
        (answer,) = self.ask(request, ProduceResponse, version).responses
        (appended,) = answer.partition_responses
        _check(appended.error_code, appended.error_message)
        return appended

    def fetch(
        self,
        topic: Topic,
        partition: int,
        offset: int,
        isolation_level: int = READ_UNCOMMITTED,
        bytes_max: int = 8 * 1024 * 1024,
        version: int | None = None,
    ) -> PartitionData:
        """Fetches from an offset, without waiting."""
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=bytes_max,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[part])],
        )
        response = self.ask(request, FetchResponse, version)
        _check(response.error_code)
        (answer,) = response.responses
        (fetched,) = answer.partitions
        _check(fetched.error_code)
        return fetched

    def wait_for_end(self, topic: Topic, partition: int, end_offset: int) -> None:
        """Waits until everything before an offset can be fetched."""
        _wait_until(
            lambda: self.fetch(topic, partition, 0).high_watermark >= end_offset,
            f"partition {partition} of {topic.name} ends at {end_offset}",
        )

    def fetch_batches(self, topic: Topic, partition: int, offset: int = 0) -> Iterator[BatchView]:
        """All batches from an offset up to the high watermark, aborted batches and markers included."""
        while (fetched := self.fetch(topic, partition, offset)).high_watermark > offset:
            asked = offset
            for batch in _whole_batches(fetched.records or b""):
                yield batch
                offset = batch.last_offset + 1
            assert offset > asked, f"nothing at offset {asked}, below the high watermark {fetched.high_watermark}"


def _whole_batches(records: bytes | bytearray | memoryview) -> Iterator[BatchView]:
    """The complete batches of a response, the last of which may be truncated."""
    try:
        yield from batches(records)
    except TornBatch as torn:
        if not torn.position:
            raise


def _wait_until(is_so: Callable[[], bool], story: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not yet: {story}"
        time.sleep(POLL_S)


def _check(code: ErrorCode, message: str | None = None) -> None:
    if code is not ErrorCode.NONE:
        raise Refused(code, message)
