"""Waits until the batches of a Produce request are confirmed: one object per request, and no task.

The state of each partition at the end decides, not which waiter was woken; a partition's first error is kept.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Buffers, Call, Later
from penstock.server.handlers.records.produce_answer import NO_OFFSET, ProduceResult, write_results
from penstock.server.loop.deadlines import Deadlines
from penstock.server.loop.waiters import OffsetWaiters, Waiting
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.traffic import EXPECTED

NO_ANSWER = 0
LEADER = 1
ALL = -1


class Confirmation(Later):
    """The response to one request, once all its partitions have confirmed or the time is up."""

    __slots__ = (
        "_acks",
        "_call",
        "_deadlines",
        "_done",
        "_left",
        "_results",
        "_waits",
        "deadline_s",
        "grain",
    )

    def __init__(
        self,
        call: Call,
        results: Sequence[ProduceResult],
        acks: int,
        timeout_ms: int,
        deadlines: Deadlines,
    ) -> None:
        self._call = call
        self._results = results
        self._acks = acks
        self.deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._waits: list[tuple[OffsetWaiters, Waiting]] = []
        self._left = 0
        self._deadlines = deadlines
        self.grain = 0

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts to wait. It cannot fail: errors of partitions are part of the response."""
        del fail
        self._done = done
        acks = self._acks
        for result in self._results:
            partition = result.partition
            if partition is None:
                continue
            trouble = _trouble(partition, result.end_offset, acks)
            if trouble is not None:
                _fail(result, *trouble)
            elif not is_reached(partition, result.end_offset, acks):
                waiters = partition.durable if acks == LEADER else partition.committed
                self._left += 1
                self._waits.append((waiters, waiters.add(result.end_offset, partial(self._told, result))))
        if self._left:
            self._deadlines.add(self)
        else:
            self._finish()

    def cancel(self) -> None:
        """Stops waiting: the client has disconnected."""
        self._deadlines.discard(self)
        for waiters, waiting in self._waits:
            waiters.discard(waiting)

    def time_is_up(self) -> None:
        """Answers partitions that are not confirmed by now with REQUEST_TIMED_OUT."""
        for waiters, waiting in self._waits:
            waiters.discard(waiting)
        self._finish()

    def _told(self, result: ProduceResult, error: Exception | None) -> None:
        if error is not None:
            code = error.code if isinstance(error, ProtocolError) else ErrorCode.UNKNOWN_SERVER_ERROR
            _fail(result, code, str(error))
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        self._deadlines.discard(self)
        for result in self._results:
            partition = result.partition
            if partition is None or result.error_code:
                continue
            if not is_reached(partition, result.end_offset, self._acks):
                _fail(result, ErrorCode.REQUEST_TIMED_OUT, "the records were appended, but not confirmed in time")
            elif self._acks == ALL and not partition.has_enough_in_sync:
                _fail(result, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, too_few(partition))
        self._done(self._written())

    def _written(self) -> Buffers:
        call = self._call
        return write_results(call.version, call.correlation_id, call.client.listener, self._results)


class ManyConfirmed(Confirmation):
    """Confirmation of many partitions: it only sets the results, and a worker writes the response."""

    __slots__ = ()

    async def wait(self) -> None:
        """Returns when all partitions are confirmed or the time is up."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: Buffers) -> None:
            if not finished.done():
                finished.set_result(None)

        self.begin(done, finished.set_exception)
        try:
            await finished
        except BaseException:
            self.cancel()
            raise

    def _written(self) -> Buffers:
        return ()


def is_reached(partition: Partition, end_offset: int, acks: int) -> bool:
    """Whether the partition has confirmed everything below an offset."""
    return (partition.log.durable_end if acks == LEADER else partition.log.high_watermark) >= end_offset


def too_few(partition: Partition) -> str:
    """The message for too few in-sync replicas."""
    return f"{partition.in_sync_count} replicas are in sync, {partition.in_sync_min} must be (min.insync.replicas)"


def _trouble(partition: Partition, end_offset: int, acks: int) -> tuple[ErrorCode, str] | None:
    """The error if the partition can no longer confirm the offset."""
    if partition.retirement is not None:
        return partition.retirement.code, str(partition.retirement)
    log = partition.log
    if log.offline_reason is not None and not is_reached(partition, end_offset, acks):
        return ErrorCode.KAFKA_STORAGE_ERROR, f"{log.path} is offline: {log.offline_reason}"
    return None


def _fail(result: ProduceResult, code: ErrorCode, sentence: str) -> None:
    if result.partition is not None and code not in EXPECTED:
        result.partition.traffic.produce_failures += 1
    result.error_code = code
    result.error_message = sentence
    if code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        result.base_offset = result.append_time_ms = result.log_start_offset = NO_OFFSET
