"""Sends batches to their leaders: one main task for all partitions, and one exchange per in-flight request.

Whenever something may have changed, the main task gives up expired batches, looks up a missing producer id or leader,
and starts an exchange with every broker for which a batch is ready. An exchange takes its batches and begins its
request without awaiting in between: this keeps sequences in order on the wire. `outbox` decides what a response means
for a batch.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, Closed, DeliveryTimedOut, Refused, Unsupported, check
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import refusal
from penstock.client.producer.exchange import Parcel, Result, note_leaders, produce_request, results
from penstock.client.producer.outbox import Batch, Outbox, OutboxSettings, Verdict
from penstock.client.retry import pause_ms
from penstock.model.errors import ErrorCode
from penstock.records.builder import HeaderEntries
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.produce import ProduceResponse

ACKS_NONE = 0
REQUESTS_MAX = 5
"""In-flight requests per broker. A broker remembers this many batches of a producer and partition."""

_PRODUCER_ID = "producer id"

Look = Callable[[], Coroutine[None, None, None]]


class Delivery(NamedTuple):
    """Where a record was stored. The offset is -1 if unknown (acks=0, or a duplicate that the broker forgot)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class _Node:
    """Sending state of one broker."""

    __slots__ = ("failures", "is_starting", "not_before_ms", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.is_starting = False
        self.failures = 0
        self.not_before_ms = 0


class Sender:
    """See the module. `released` is called with the number of bytes that are no longer held."""

    def __init__(
        self,
        cluster: Cluster,
        settings: OutboxSettings,
        *,
        acks: int,
        request_bytes_max: int,
        released: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._settings = settings
        self._acks = acks
        self._request_bytes_max = request_bytes_max
        self._released = released
        self._outboxes: dict[TopicPartition, Outbox] = {}
        self._active: dict[TopicPartition, Outbox] = {}
        self._nodes: dict[int, _Node] = {}
        self._lane = cluster.new_lane("producer")
        self._loop = asyncio.get_running_loop()
        self._identity: tuple[int, int] | None = None
        self._looking: dict[str, None] = {}
        self._failed_looks: dict[str, tuple[int, int]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waker: asyncio.Future[None] | None = None
        self._progress: asyncio.Future[None] | None = None
        self._flushes = 0
        self._tending = self._loop.create_task(self._tend())
        self.unresolved: dict[Batch, TopicPartition] = {}
        """Batches without a known outcome."""

    # --- called by the producer

    def add(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderEntries,
        timestamp_ms: int,
        held_bytes: int,
    ) -> "tuple[asyncio.Future[Delivery], bool]":
        """Adds a record; returns the future of its delivery, and whether a full batch waits to be sent."""
        outbox = self._outboxes.get(partition)
        if outbox is None:
            outbox = self._outboxes[partition] = Outbox(partition, self._settings)
        batch = outbox.add(key, value, headers, timestamp_ms, self._clock.monotonic_ms())
        delivery: asyncio.Future[Delivery] = self._loop.create_future()
        batch.deliveries.append((delivery, timestamp_ms))
        batch.held_bytes += held_bytes
        self.unresolved[batch] = partition
        self._active.setdefault(partition, outbox)
        self.wake()
        return delivery, len(outbox.queue) > 1

    async def flush(self, batches: list[Batch]) -> None:
        """Waits until the outcome of these batches is known; batches do not linger meanwhile."""
        self._flushes += 1
        self.wake()
        try:
            while any(batch in self.unresolved for batch in batches):
                if self._progress is None or self._progress.done():
                    self._progress = self._loop.create_future()
                await asyncio.shield(self._progress)
        finally:
            self._flushes -= 1

    async def stop(self) -> None:
        """Gives up undelivered batches, and stops."""
        tasks = [self._tending, *self._tasks]
        for task in tasks:
            task.cancel()
        for batch in list(self.unresolved):
            self._fail(batch, Closed("the producer was closed before the record was delivered"))
        await asyncio.gather(*tasks, self._cluster.close_lane(self._lane), return_exceptions=True)

    # --- the main task

    def wake(self) -> None:
        """Wakes the main task after a possible change."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _tend(self) -> None:
        while True:
            self._waker = self._loop.create_future()
            wake_ms = self._round(self._clock.monotonic_ms())
            timer = None
            if wake_ms is not None:
                wait_ms = max(1, wake_ms - self._clock.monotonic_ms())
                timer = self._loop.call_later(wait_ms / 1000, self.wake)
            try:
                await self._waker
            finally:
                if timer is not None:
                    timer.cancel()

    def _round(self, now_ms: int) -> int | None:
        """Does the work that is due; returns when to run again unless woken earlier."""
        wake_ms: list[int] = []
        nodes: dict[int, None] = {}
        for outbox in list(self._active.values()):
            for batch in outbox.expire(now_ms):
                self._fail(batch, self._too_late(outbox.partition, batch))
            for batch in outbox.take_lost():
                self._fail(batch, _adrift(outbox.partition, batch))
            if outbox.is_idle:
                del self._active[outbox.partition]
                continue
            if (expires_ms := outbox.expires_at_ms()) is not None:
                wake_ms.append(expires_ms)
            ready_ms = outbox.ready_at_ms(is_flushing=self._flushes > 0)
            if ready_ms is None:
                continue
            if ready_ms > now_ms:
                wake_ms.append(ready_ms)
            elif not self._has_identity(outbox):
                wake_ms += self._look_up(_PRODUCER_ID, self._get_identity, now_ms)
            elif (leader := self._cluster.leader(outbox.partition)) is None:
                topic = outbox.partition.topic
                wake_ms += self._look_up(topic, partial(self._get_leaders, topic), now_ms)
            else:
                nodes[leader] = None
        for node_id in nodes:
            node = self._nodes.setdefault(node_id, _Node())
            if node.is_starting or node.requests >= REQUESTS_MAX:
                continue
            if node.not_before_ms > now_ms:
                wake_ms.append(node.not_before_ms)
            else:
                node.is_starting = True
                self._start(self._exchange(node_id, node))
        return min(wake_ms, default=None)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    # --- producer ids and leaders

    def _has_identity(self, outbox: Outbox) -> bool:
        if not self._settings.is_idempotent:
            return True
        if outbox.identity is None and self._identity is not None and self._identity[0] != outbox.spent_id:
            outbox.identity = self._identity
        return outbox.identity is not None

    def _look_up(self, what: str, look: Look, now_ms: int) -> list[int]:
        """Starts a look-up unless one is running or has just failed; returns when to run again."""
        failures, not_before_ms = self._failed_looks.get(what, (0, 0))
        if what in self._looking:
            return []
        if not_before_ms > now_ms:
            return [not_before_ms]
        self._looking[what] = None
        self._start(self._run_look_up(what, look, failures + 1))
        return []

    async def _run_look_up(self, what: str, look: Look, attempt: int) -> None:
        try:
            await look()
            self._failed_looks.pop(what, None)
        except ClientError as error:
            again_ms = self._clock.monotonic_ms() + pause_ms(attempt, self._cluster.ports.entropy)
            self._failed_looks[what] = (attempt, again_ms)
            if not error.is_retriable:
                for outbox in self._active.values():
                    if what in (_PRODUCER_ID, outbox.partition.topic):
                        for batch in outbox.give_up():
                            self._fail(batch, error)
        finally:
            del self._looking[what]
            self.wake()

    async def _get_identity(self) -> None:
        response = await self._cluster.ask_checked(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF),
            InitProducerIdResponse,
            lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
            timeout_ms=self._cluster.request_timeout_ms,
        )
        check(response.error_code, None, _PRODUCER_ID)
        self._identity = (response.producer_id, response.producer_epoch)

    async def _get_leaders(self, topic: str) -> None:
        refused = await self._cluster.refresh([topic], timeout_ms=self._cluster.request_timeout_ms)
        check(refused.get(topic, ErrorCode.NONE), None, f"topic {topic}")
        for partition in self._active:
            if partition.topic == topic and self._cluster.leader(partition) is None:
                raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))

    # --- exchanges

    async def _exchange(self, node_id: int, node: _Node) -> None:
        try:
            connection = await self._cluster.connection(node_id, self._lane)
            parcels = self._pack(node_id)
        except ClientError as error:
            node.failures += 1
            node.not_before_ms = self._clock.monotonic_ms() + pause_ms(node.failures, self._cluster.ports.entropy)
            self._unreached(node_id, error)
            return
        finally:
            node.is_starting = False
            self.wake()
        node.failures = 0
        if not parcels:
            return
        node.requests += 1
        try:
            answers = await self._deliver(connection, parcels)
        except Unsupported as error:
            answers = [Result(ErrorCode.UNSUPPORTED_VERSION, str(error))] * len(parcels)
        except ClientError as error:
            # Whether the batches arrived is unknown; the leader may also have moved.
            answers = [Result(ErrorCode.NETWORK_EXCEPTION, str(error))] * len(parcels)
        finally:
            node.requests -= 1
            self.wake()
        for parcel, result in zip(parcels, answers, strict=True):
            self._settle(parcel, result)

    def _pack(self, node_id: int) -> list[Parcel]:
        """Takes at most one batch of each partition that this broker leads, as many as fit into a request."""
        now_ms = self._clock.monotonic_ms()
        parcels: list[Parcel] = []
        size_bytes = 0
        for partition, outbox in list(self._active.items()):
            if self._cluster.leader(partition) != node_id or not self._has_identity(outbox):
                continue
            ready_ms = outbox.ready_at_ms(is_flushing=self._flushes > 0)
            if ready_ms is None or ready_ms > now_ms:
                continue
            if parcels and size_bytes + outbox.queue[0].builder.size_bytes > self._request_bytes_max:
                continue
            batch = outbox.take()
            parcels.append(Parcel(outbox, batch))
            size_bytes += len(batch.data or b"")
            self._active[partition] = self._active.pop(partition)  # to the end: others go first next time
        return parcels

    async def _deliver(self, connection: BrokerConnection, parcels: list[Parcel]) -> list[Result]:
        limit_ms = self._cluster.request_timeout_ms
        view = self._cluster.view
        request, version = produce_request(connection, view, parcels, self._acks, limit_ms)
        if self._acks == ACKS_NONE:
            await connection.tell(request, version=version)
            return [Result(ErrorCode.NONE)] * len(parcels)
        response = await connection.begin(request, ProduceResponse, version=version, timeout_ms=2 * limit_ms)
        note_leaders(view, request, version, response)
        return results(request, version, response, parcels)

    def _unreached(self, node_id: int, error: ClientError) -> None:
        for partition, outbox in self._active.items():
            if self._cluster.leader(partition) == node_id:
                self._cluster.distrust(partition.topic)
                if not error.is_retriable:
                    for batch in outbox.give_up():
                        self._fail(batch, error)

    def _settle(self, parcel: Parcel, result: Result) -> None:
        outbox, batch = parcel
        if batch not in self.unresolved:
            return  # the producer was closed
        entropy = self._cluster.ports.entropy
        verdict = outbox.answered(
            batch, result.code, self._clock.monotonic_ms(), lambda attempt: pause_ms(attempt, entropy)
        )
        if result.code.is_retriable and result.code is not ErrorCode.REQUEST_TIMED_OUT:
            self._cluster.distrust(outbox.partition.topic)  # it may have moved
        if verdict is Verdict.DONE:
            self._succeed(outbox.partition, batch, result)
        elif verdict is Verdict.FAILED:
            if result.code.is_retriable:
                self._fail(batch, self._too_late(outbox.partition, batch, result))
            else:
                self._fail(batch, _refused(outbox.partition, result))

    def _succeed(self, partition: TopicPartition, batch: Batch, result: Result) -> None:
        self._resolve(batch)
        for number, (delivery, timestamp_ms) in enumerate(batch.deliveries):
            if not delivery.done():
                offset = -1 if result.base_offset < 0 else result.base_offset + number
                stamp_ms = timestamp_ms if result.append_time_ms < 0 else result.append_time_ms
                delivery.set_result(Delivery(*partition, offset, stamp_ms))

    def _fail(self, batch: Batch, error: ClientError) -> None:
        self._resolve(batch)
        for delivery, _ in batch.deliveries:
            if not delivery.done():
                delivery.set_exception(error)

    def _resolve(self, batch: Batch) -> None:
        if self.unresolved.pop(batch, None) is not None:
            self._released(batch.held_bytes)
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)
        self.wake()

    def _too_late(self, partition: TopicPartition, batch: Batch, result: Result | None = None) -> DeliveryTimedOut:
        is_unsent = batch.attempts == 0
        reason = f"; the last answer was {result.code.name} ({result.message})" if result is not None else ""
        known = "it was never sent" if is_unsent else f"sent {batch.attempts} times; it may be in the log all the same"
        limit_ms = self._settings.delivery_timeout_ms
        return DeliveryTimedOut(
            f"{partition}: not delivered within {limit_ms} ms ({known}){reason}", is_unsent=is_unsent
        )


def _adrift(partition: TopicPartition, batch: Batch) -> DeliveryTimedOut:
    return DeliveryTimedOut(
        f"{partition}: sent {batch.attempts} times without an answer, and once more could store it twice; it may be in "
        "the log all the same: look there, or send it again if twice does no harm",
        is_unsent=False,
    )


def _refused(partition: TopicPartition, result: Result) -> ClientError:
    if result.code is ErrorCode.UNSUPPORTED_VERSION and result.message:
        return Unsupported(result.message)
    return (
        refusal(result.code, str(partition))
        if not result.message
        else Refused(result.code, result.message, str(partition))
    )
