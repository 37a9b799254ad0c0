"""Fetches for all cursors: one long poll per broker at a time, for all partitions that it leads and that want more.

Requests are full fetches (no fetch sessions). A partition that returned records moves to the end of the next request,
because a broker fills its response in request order. Results are queued in order of arrival; `wants_more` bounds them.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.arguments import check_fields
from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.consumer.cursor import Cursor
from penstock.client.consumer.fetched import Fetched, whole_batches
from penstock.client.errors import ClientError, Refused, TimedOut
from penstock.client.metadata import Broker, TopicPartition
from penstock.client.offsets import Isolation, refusal
from penstock.client.retry import pause_ms
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.wire.types import ZERO_UUID

LAST_BY_NAME = 12
_FIRST_WITH_LAST_EPOCH = 12
SILENCE_MS = 3_000
"""How long after `wait_ms_max` a broker is considered silent."""


class Trouble(NamedTuple):
    """Something that a reader is waiting for: a partition, or the coordinator of its group (None)."""

    partition: TopicPartition | None
    since_ms: int
    error: ClientError


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Sizes and time limits of fetches."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    wait_ms_max: int = 500
    """How long a broker may wait for `bytes_min`."""
    bytes_min: int = 1
    bytes_max: int = 50 * 1024 * 1024
    """In one response, of all partitions; a larger first batch is returned nevertheless."""
    partition_bytes_max: int = 1024 * 1024
    ahead_bytes_max: int = 2 * 1024 * 1024
    """Limit of unread bytes of one partition, above which it is left out of the next fetch."""
    ahead_bytes_total_max: int | None = None
    """Limit of unread bytes of all partitions together, above which nothing is fetched; no limit by default."""
    patience_ms: int = 60_000
    """How long a partition may have no leader, or an unreachable one, before the reader gets an error."""

    def __post_init__(self) -> None:
        check_fields(self)


class Fetcher:
    """See the module."""

    def __init__(self, cluster: Cluster, settings: FetchSettings) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.queue: deque[tuple[Cursor, int, Fetched]] = deque()
        """Fetched batches, with the cursor's life at that time."""
        self.trouble: Exception | None = None
        """The permanent error that ended all fetching; it does not concern a single partition."""
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._settings = settings
        self._lane = cluster.new_lane("consumer")
        self._loop = asyncio.get_running_loop()
        self._busy: dict[int, tuple[int, list[Cursor]]] = {}
        """For each broker with a fetch under way, when it began, and its cursors."""
        self._looking: dict[str, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waker: asyncio.Future[None] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._tending = self._loop.create_task(self._tend())
        self._tending.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancels all tasks and closes the connections."""
        tasks = [self._tending, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._cluster.close_lane(self._lane), return_exceptions=True)

    def arrival(self) -> "asyncio.Future[None]":
        """A future that completes on the next event: records, an end, or an error."""
        if self._arrival is None or self._arrival.done():
            self._arrival = self._loop.create_future()
        return self._arrival

    def wake(self) -> None:
        """Wakes the main task after cursors have changed."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def tell(self) -> None:
        """Notifies the reader of an event."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def fail(self, trouble: Exception) -> None:
        """Stops fetching and reports the error to the reader."""
        self.trouble = trouble
        self.tell()

    def troubles(self) -> list[Trouble]:
        """The partitions whose fetches fail or remain unanswered, sorted."""
        now_ms = self._clock.monotonic_ms()
        found: dict[TopicPartition, Trouble] = {}
        for node_id, (since_ms, cursors) in self._busy.items():
            broker = self._cluster.view.brokers.get(node_id)
            where = f"broker {node_id}" + (f" at {broker.address}" if broker is not None else "")
            if now_ms - since_ms > self._settings.wait_ms_max + SILENCE_MS:
                error = TimedOut(f"{where} does not answer")
                found |= {each.partition: Trouble(each.partition, since_ms, error) for each in cursors}
        for cursor in self.cursors.values():
            if cursor.failing_since_ms is not None and cursor.error is not None:
                found[cursor.partition] = Trouble(cursor.partition, cursor.failing_since_ms, cursor.error)
        return [found[each] for each in sorted(found) if each in self.cursors]

    # --- the main task

    async def _tend(self) -> None:
        while True:
            self._waker = self._loop.create_future()
            wake_ms = self._round(self._clock.monotonic_ms())
            timer = None
            if wake_ms is not None:
                timer = self._loop.call_later(max(1, wake_ms - self._clock.monotonic_ms()) / 1000, self.wake)
            try:
                await self._waker
            finally:
                if timer is not None:
                    timer.cancel()

    def _round(self, now_ms: int) -> int | None:
        """Starts fetches and metadata look-ups; returns when to run again unless woken earlier."""
        if self.trouble is not None or self._holds_enough():
            return None
        wake_ms: list[int] = []
        nodes: dict[int, list[Cursor]] = {}
        for cursor in self.cursors.values():
            if not cursor.wants_more(self._settings.ahead_bytes_max):
                continue
            if cursor.not_before_ms > now_ms:
                wake_ms.append(cursor.not_before_ms)
                continue
            leader = self._cluster.leader(cursor.partition)
            if leader is not None:
                nodes.setdefault(leader, []).append(cursor)
            elif cursor.partition.topic not in self._looking:
                self._looking[cursor.partition.topic] = None
                self._start(self._find_leaders(cursor.partition.topic))
        for node_id, cursors in nodes.items():
            if node_id not in self._busy:
                self._busy[node_id] = (now_ms, cursors)
                self._start(self._fetch(node_id, cursors))
        return min(wake_ms, default=None)

    def _holds_enough(self) -> bool:
        most = self._settings.ahead_bytes_total_max
        return most is not None and sum(cursor.ahead_bytes for cursor in self.cursors.values()) >= most

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Reports an unexpected exception to the reader: a retry would fail again."""
        self._tasks.pop(task, None)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    async def _find_leaders(self, topic: str) -> None:
        error: ClientError | None = None
        try:
            refused = await self._cluster.refresh([topic], timeout_ms=self._cluster.request_timeout_ms)
            if topic in refused:
                error = refusal(refused[topic], f"topic {topic}")
        except ClientError as unreached:
            error = unreached
        finally:
            del self._looking[topic]
            self.wake()
        for cursor in self.cursors.values():
            if cursor.partition.topic == topic and self._cluster.leader(cursor.partition) is None:
                self._failed(cursor, error or refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(cursor.partition)))

    # --- one fetch

    async def _fetch(self, node_id: int, cursors: list[Cursor]) -> None:
        asked = {cursor: cursor.fetch_offset for cursor in cursors}
        try:
            connection = await self._cluster.connection(node_id, self._lane)
            request, version = self._request(connection, cursors)
            limit_ms = self._settings.wait_ms_max + self._cluster.request_timeout_ms
            response = await connection.ask(request, FetchResponse, version=version, timeout_ms=limit_ms)
            if response.error_code is not ErrorCode.NONE:
                raise refusal(response.error_code, connection.address)
        except ClientError as error:
            for cursor in cursors:
                if cursor.fetch_offset == asked[cursor]:
                    self._cluster.distrust(cursor.partition.topic)
                    self._failed(cursor, error)
            return
        finally:
            del self._busy[node_id]
            self.wake()
        parts = self._parts(request, version, response)
        for cursor in cursors:
            part = parts.get(cursor.partition)
            if part is None or self.cursors.get(cursor.partition) is not cursor:
                continue
            if cursor.fetch_offset != asked[cursor]:
                continue  # a seek, or the partition moved and its new leader answered first
            self._take(cursor, asked[cursor], part, response)
            if part.records is not None and len(part.records):
                self.cursors[cursor.partition] = self.cursors.pop(cursor.partition)  # others go first next time
        self.tell()

    def _request(self, connection: BrokerConnection, cursors: list[Cursor]) -> tuple[FetchRequest, int]:
        view = self._cluster.view
        names = dict.fromkeys(cursor.partition.topic for cursor in cursors)
        ids = {name: known.topic_id if (known := view.topics.get(name)) else ZERO_UUID for name in names}
        version = connection.version_for(FetchRequest, LAST_BY_NAME if ZERO_UUID in ids.values() else None)
        topics: dict[str, list[FetchPartition]] = {name: [] for name in names}
        for cursor in cursors:
            placed = view.partition(*cursor.partition)
            part = FetchPartition(
                partition=cursor.partition.partition,
                current_leader_epoch=placed.leader_epoch if placed else -1,
                fetch_offset=cursor.fetch_offset,
                last_fetched_epoch=cursor.last_epoch if version >= _FIRST_WITH_LAST_EPOCH else -1,
                partition_max_bytes=self._settings.partition_bytes_max,
            )
            topics[cursor.partition.topic].append(part)
        request = FetchRequest(
            max_wait_ms=self._settings.wait_ms_max,
            min_bytes=self._settings.bytes_min,
            max_bytes=self._settings.bytes_max,
            isolation_level=self._settings.isolation,
            topics=[FetchTopic(topic=name, topic_id=ids[name], partitions=parts) for name, parts in topics.items()],
        )
        return request, version

    @staticmethod
    def _parts(request: FetchRequest, version: int, response: FetchResponse) -> dict[TopicPartition, PartitionData]:
        names = {topic.topic_id: topic.topic for topic in request.topics}
        found: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = topic.topic if version <= LAST_BY_NAME else names.get(topic.topic_id, "")
            for part in topic.partitions:
                found[TopicPartition(name, part.partition_index)] = part
        return found

    def _take(self, cursor: Cursor, offset: int, part: PartitionData, response: FetchResponse) -> None:
        """Processes the response of one partition."""
        if part.error_code is not ErrorCode.NONE:
            brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
            leader = part.current_leader
            if not self._cluster.view.note_leader(*cursor.partition, leader.leader_id, leader.leader_epoch, brokers):
                self._cluster.distrust(cursor.partition.topic)
            self._failed(cursor, refusal(part.error_code, f"{cursor.partition} at offset {offset}"))
            return
        if part.diverging_epoch.epoch >= 0:
            text = (
                f"the log was cut back to offset {part.diverging_epoch.end_offset}: records that were read from "
                "there on are not in it any more"
            )
            self._failed(cursor, Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text, str(cursor.partition)))
            return
        aborted = None
        if self._settings.isolation is Isolation.READ_COMMITTED:
            aborted = tuple((each.producer_id, each.first_offset) for each in part.aborted_transactions or ())
        try:
            batches = whole_batches(cursor.partition, offset, part.records or b"")
        except ProtocolError as error:
            self._failed(cursor, Refused(error.code, str(error)))
            return
        fetched = Fetched(
            cursor.partition,
            offset,
            batches,
            aborted,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
        )
        cursor.arrived(fetched)
        if batches:
            self.queue.append((cursor, cursor.life, fetched))

    def _failed(self, cursor: Cursor, error: ClientError) -> None:
        now_ms = self._clock.monotonic_ms()
        wait_ms = pause_ms(cursor.failures + 1, self._cluster.ports.entropy)
        is_corrupt = isinstance(error, Refused) and error.code is ErrorCode.CORRUPT_MESSAGE
        is_hopeless = is_corrupt or not error.is_retriable
        if cursor.failed(error, now_ms, wait_ms) >= self._settings.patience_ms or is_hopeless:
            cursor.trouble = error
            self.tell()
