"""Waiting until what a Produce request appended is confirmed: one object per request, and no task.

What counts is what each partition says at the end, not who woke us; the first reason why waiting is in vain is kept.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.produce_answer import NO_OFFSET, Outcome, write_outcomes
from penstock.server.partition import Partition
from penstock.server.serving import Buffers, Later
from penstock.server.traffic import EXPECTED
from penstock.server.waiters import OffsetWaiters, Waiting

NO_ANSWER = 0
LEADER = 1
ALL = -1


class Confirmation(Later):
    """The answer to one request, once all its partitions have confirmed or the time is up."""

    __slots__ = (
        "_acks",
        "_correlation_id",
        "_deadline_s",
        "_done",
        "_left",
        "_outcomes",
        "_timer",
        "_version",
        "_waits",
    )

    def __init__(
        self, version: int, correlation_id: int, outcomes: Sequence[Outcome], acks: int, timeout_ms: int
    ) -> None:
        self._version = version
        self._correlation_id = correlation_id
        self._outcomes = outcomes
        self._acks = acks
        self._deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._waits: list[tuple[OffsetWaiters, Waiting]] = []
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts to wait. It cannot fail: what goes wrong with a partition is part of the answer."""
        del fail
        self._done = done
        acks = self._acks
        for outcome in self._outcomes:
            partition = outcome.partition
            if partition is None:
                continue
            trouble = _trouble(partition, outcome.end_offset, acks)
            if trouble is not None:
                _fail(outcome, *trouble)
            elif not is_reached(partition, outcome.end_offset, acks):
                waiters = partition.durable if acks == LEADER else partition.committed
                self._left += 1
                self._waits.append((waiters, waiters.add(outcome.end_offset, partial(self._told, outcome))))
        if self._left:
            self._timer = asyncio.get_running_loop().call_at(self._deadline_s, self._time_is_up)
        else:
            self._finish()

    def cancel(self) -> None:
        """The client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        for waiters, waiting in self._waits:
            waiters.discard(waiting)

    def _told(self, outcome: Outcome, error: Exception | None) -> None:
        if error is not None:
            code = error.code if isinstance(error, ProtocolError) else ErrorCode.UNKNOWN_SERVER_ERROR
            _fail(outcome, code, str(error))
        self._left -= 1
        if not self._left:
            self._finish()

    def _time_is_up(self) -> None:
        for waiters, waiting in self._waits:
            waiters.discard(waiting)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for outcome in self._outcomes:
            partition = outcome.partition
            if partition is None or outcome.error_code:
                continue
            if not is_reached(partition, outcome.end_offset, self._acks):
                _fail(outcome, ErrorCode.REQUEST_TIMED_OUT, "the records were appended, but not confirmed in time")
            elif self._acks == ALL and not partition.has_enough_in_sync:
                _fail(outcome, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, too_few(partition))
        self._done(self._written())

    def _written(self) -> Buffers:
        return write_outcomes(self._version, self._correlation_id, self._outcomes)


class ManyConfirmed(Confirmation):
    """The same for so many partitions that a worker writes the answer: outcomes say what became of them."""

    __slots__ = ()

    async def wait(self) -> None:
        """Until all are confirmed, or the time is up."""
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
    """Why acks=all cannot be promised."""
    return f"{partition.in_sync_count} replicas are in sync, {partition.in_sync_min} must be (min.insync.replicas)"


def _trouble(partition: Partition, end_offset: int, acks: int) -> tuple[ErrorCode, str] | None:
    """Why waiting is in vain."""
    if partition.retirement is not None:
        return partition.retirement.code, str(partition.retirement)
    log = partition.log
    if log.offline_reason is not None and not is_reached(partition, end_offset, acks):
        return ErrorCode.KAFKA_STORAGE_ERROR, f"{log.path} is offline: {log.offline_reason}"
    return None


def _fail(outcome: Outcome, code: ErrorCode, sentence: str) -> None:
    if outcome.partition is not None and code not in EXPECTED:
        outcome.partition.traffic.produce_failures += 1
    outcome.error_code = code
    outcome.error_message = sentence
    if code not in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        outcome.base_offset = outcome.append_time_ms = outcome.log_start_offset = NO_OFFSET
