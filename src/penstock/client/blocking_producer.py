"""The producer for programs without an event loop: `publish` returns at once, and records are sent in batches.

    with client.producer() as producer:
        for order in orders:
            producer.publish("orders", order)

Records wait in a queue of bounded size until the loop's thread takes them; a caller that is faster waits. Every record
is delivered, or its error is raised: by `result` of what `publish` returned, or else by the next `publish` or `flush`,
or at the end of the `with` block. It is thread-safe.
"""

import asyncio
import threading  # determinism: a blocking client never runs in a simulation
from collections import deque
from collections.abc import Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from penstock.client.arguments import typed
from penstock.client.async_client import Headers, Published, Text, encoded, encoded_headers
from penstock.client.errors import BufferFull, ClientError, Closed, PublishFailed, TimedOut, Unpublished

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer
    from penstock.client.producer.sender import Delivery

QUEUE_BYTES_MAX = 4 * 1024 * 1024
_RECORD_BYTES = 200  # what a record costs besides its key and value
_LOOK_S = 0.005


class Entry(NamedTuple):
    """A record in the queue."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp_ms: int | None
    size_bytes: int


class Pending:
    """A record that was published and may not be delivered yet."""

    __slots__ = ("_error", "_is_awaited", "_place", "_producer", "_record")

    def __init__(self, producer: "SyncProducer", record: Entry) -> None:
        self._producer = producer
        self._record: Entry | None = record
        self._is_awaited = False
        self._place: Published | None = None
        self._error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether the record is delivered or given up."""
        return self._place is not None or self._error is not None

    def result(self, timeout_ms: int | None = None) -> Published:
        """Waits until the record is delivered; raises its error, or TimedOut if neither is known in time."""
        return self._producer.result_of(self, timeout_ms)


class Runner(Protocol):
    """The blocking client, which runs coroutines in the loop's thread."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine and waits for it."""

    def start(self, work: Coroutine[Any, Any, None]) -> object:
        """Starts a coroutine."""

    def release_producer(self, producer: "SyncProducer", inner: "Producer") -> None:
        """Closes the producer behind a blocking one."""


class SyncProducer:
    """Sends records in batches while the program goes on. Made by `SyncClient.producer`; use it as a context manager.

    Every record is delivered, or its error is raised: by `result` of what `publish` returned, or else by the next
    `publish` or `flush`, or at the end of the `with` block. A caller that is faster than the cluster waits.
    """

    def __init__(self, client: Runner, producer: "Producer", block_ms_max: int) -> None:
        self._client = client
        self._producer = producer
        self._block_ms_max = block_ms_max
        self._changed = threading.Condition()  # determinism: see above
        self._queue: deque[Pending] = deque()
        self._blocked = 0
        """Threads that wait for room in the queue."""
        self._accepted = 0
        self._accepted_bytes = 0
        self._sent = 0
        """Records that the asynchronous producer has accepted or refused; only the loop's thread changes it."""
        self._sent_bytes = 0
        self._is_draining = False
        self._failures: dict[Pending, Unpublished] = {}
        """Not raised yet. While there are any, no record is accepted, so that they are bounded as records are."""
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PublishFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))

    # --- called by the program

    @typed
    def publish(
        self,
        topic: str,
        value: Text | None,
        key: Text | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Pending:
        """Accepts a record, waiting while the queue is full. Raises PublishFailed for records published earlier."""
        data, name = encoded(value), encoded(key)
        pairs = encoded_headers(headers) if headers else []
        size_bytes = _RECORD_BYTES + len(data or b"") + len(name or b"")
        size_bytes += sum(len(each) + len(content or b"") for each, content in pairs)
        pending = Pending(self, Entry(topic, data, name, pairs, partition, timestamp_ms, size_bytes))
        with self._changed:
            if not self._has_room(size_bytes):
                self._wait_for_room(size_bytes)
            self._check_open()
            self._raise_failures()
            self._queue.append(pending)
            self._accepted += 1
            self._accepted_bytes += size_bytes
            is_waking = not self._is_draining
            self._is_draining = True
        if is_waking:
            self._client.start(self._drain())
        return pending

    @typed
    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until all records are delivered or given up; raises PublishFailed, or TimedOut if it takes longer."""
        self._check_open()
        self._flush(timeout_ms)
        with self._changed:
            self._raise_failures()

    def close(self) -> None:
        """Flushes and closes; raises PublishFailed for records that were not delivered."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._flush(None)
        finally:
            self._client.release_producer(self, self._producer)
        with self._changed:
            self._raise_failures()

    def result_of(self, pending: Pending, timeout_ms: int | None) -> Published:
        """As Pending.result."""
        with self._changed:
            pending._is_awaited = True  # before the look at it: either the outcome is seen here, or this mark there
            self._changed.wait_for(lambda: pending.is_done, None if timeout_ms is None else timeout_ms / 1000)
            if pending._place is not None:
                return pending._place
            if pending._error is None:
                raise TimedOut(f"the record is not delivered after {timeout_ms} ms")
            self._failures.pop(pending, None)
            raise pending._error

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this producer was closed")

    @property
    def _queued_bytes(self) -> int:
        return self._accepted_bytes - self._sent_bytes

    def _has_room(self, size_bytes: int) -> bool:
        queued_bytes = self._queued_bytes
        return not queued_bytes or queued_bytes + size_bytes <= QUEUE_BYTES_MAX

    def _wait_for_room(self, size_bytes: int) -> None:
        self._blocked += 1  # before the look at the room, as in `result_of`
        try:
            is_over = self._changed.wait_for(
                lambda: self._is_closed or self._has_room(size_bytes), self._block_ms_max / 1000
            )
        finally:
            self._blocked -= 1
        if not is_over:
            count = self._accepted - self._sent
            waiting = f"{count} records wait to be sent, and too few were"
            if count == 1:
                waiting = "1 record waits to be sent, and none was"
            raise BufferFull(
                f"{waiting} within {self._block_ms_max} ms: is a broker down? A larger block_ms_max waits longer"
            )

    def _raise_failures(self) -> None:
        if self._failures:
            failures, self._failures = tuple(self._failures.values()), {}
            raise PublishFailed(failures)

    def _flush(self, timeout_ms: int | None) -> None:
        self._client.run(self._flushed(self._accepted, timeout_ms))

    # --- in the loop's thread

    async def _flushed(self, count: int, timeout_ms: int | None) -> None:
        """Returns when the outcome of the first `count` records is known."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while self._sent < count:
                    await asyncio.sleep(_LOOK_S)
                    await self._producer.flush()
                await self._producer.flush()
                await asyncio.sleep(0)  # outcomes are noted by callbacks
        except TimeoutError:
            raise TimedOut(
                f"not all records are delivered after {timeout_ms} ms: allow more time, or look at the broker"
            ) from None

    async def _drain(self) -> None:
        while True:
            with self._changed:
                entries, self._queue = self._queue, deque()
                if not entries:
                    self._is_draining = False
                    return
            for pending in entries:
                record = pending._record
                assert record is not None
                topic, value, key, headers, partition, timestamp_ms, size_bytes = record
                try:
                    delivery = await self._producer.send(
                        topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                    )
                except Exception as error:
                    self._failed(pending, error)
                else:
                    delivery.add_done_callback(partial(self._delivered, pending))
                self._sent += 1
                self._sent_bytes += size_bytes
                if self._blocked and self._queued_bytes <= QUEUE_BYTES_MAX // 2:
                    self._tell()

    def _delivered(self, pending: Pending, delivery: "asyncio.Future[Delivery]") -> None:
        if delivery.cancelled():
            self._failed(pending, Closed("the producer was closed before the record was delivered"))
        elif (error := delivery.exception()) is not None:
            self._failed(pending, error if isinstance(error, Exception) else ClientError(str(error)))
        else:
            _, partition, offset, _ = delivery.result()
            pending._place, pending._record = Published(partition, offset), None
            if pending._is_awaited:
                self._tell()

    def _failed(self, pending: Pending, error: Exception) -> None:
        record = pending._record
        assert record is not None
        with self._changed:
            pending._error, pending._record = error, None
            self._failures[pending] = Unpublished(record.topic, record.key, record.value, error)
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
