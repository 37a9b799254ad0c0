"""Opens batches outside the loop: clients determine how long it takes to decompress and walk their records.

Small batches are opened on the loop. Larger ones are opened by a worker, one at a time on the whole node, because
threads share the interpreter; waiting requests are served in order.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from penstock.log import times
from penstock.log.log import Log
from penstock.log.times import LOOKED_AT_BYTES_MAX, TimedOffset
from penstock.model.errors import ProtocolError
from penstock.model.ports import Workers
from penstock.records import stamps
from penstock.records.compression import output_bytes_max
from penstock.records.header import BatchView
from penstock.server.loop.pacing import pacer
from penstock.server.loop.pieces import Turns

T = TypeVar("T")

AT_ONCE_RECORDS: Final = 500
AT_ONCE_BYTES: Final = 32 * 1024
DECOMPRESSED_AT_ONCE_BYTES: Final = 256 * 1024
"""A batch within the first two limits that cannot decompress to more than this is opened on the loop."""
OPENED_MAX: Final = 8
"""Batches that one look-up opens in vain before it trusts the header of the next."""
STEP_ELEMENTS: Final = 100
"""Elements that a step of a look-up counts as (`Turns`)."""


def is_small(batch: BatchView) -> bool:
    """Whether a batch may be opened on the loop."""
    if batch.count > AT_ONCE_RECORDS or batch.size_bytes > AT_ONCE_BYTES:
        return False
    try:
        return output_bytes_max(batch.codec, batch.payload) <= DECOMPRESSED_AT_ONCE_BYTES
    except ProtocolError:
        return True  # opening it fails at once


class Opener(Protocol):
    """Interface for opening batches."""

    async def open(self, batch: BatchView, work: Callable[[], T]) -> T:
        """Runs `work`, which opens the batch, and returns its result."""


class WorkerOpener:
    """See the module."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._lock = asyncio.Lock()

    async def open(self, batch: BatchView, work: Callable[[], T]) -> T:
        """Runs `work`, which opens the batch, and returns its result."""
        if is_small(batch):
            await pacer().turn()
            return work()
        async with self._lock:
            return await self._workers.run(work)


async def offset_for_time(log: Log, timestamp_ms: int, limit: int, opener: Opener, turns: Turns) -> TimedOffset | None:
    """The first record below `limit` with at least this timestamp."""
    offset, opened = log.start_offset, 0
    while True:
        await turns.after(STEP_ELEMENTS)
        found = times.batch_since(log, timestamp_ms, max(offset, log.start_offset), limit)
        if found is None:
            return None
        if isinstance(found, int):
            offset = found
            continue
        if opened == OPENED_MAX:
            return TimedOffset(found.max_timestamp_ms, max(found.base_offset, log.start_offset), found.leader_epoch)
        look = partial(stamps.first_since, found, timestamp_ms, log.start_offset, limit, LOOKED_AT_BYTES_MAX)
        stamp = await opener.open(found, look)
        if stamp is not None:
            return TimedOffset(*stamp, found.leader_epoch)
        offset, opened = found.last_offset + 1, opened + 1


async def offset_of_max_timestamp(log: Log, limit: int, opener: Opener, turns: Turns) -> TimedOffset | None:
    """The first record below `limit` with the highest timestamp of all."""
    step = times.Step(log.start_offset, None)
    while step.next_offset is not None:
        await turns.after(STEP_ELEMENTS)
        step = times.newest_batch(log, max(step.next_offset, log.start_offset), limit, step.best)
    best: TimedOffset | None = None
    for batch in list(times.newest_candidates(log, step.best, limit)):
        look = partial(stamps.latest, batch, log.start_offset, limit, LOOKED_AT_BYTES_MAX)
        stamp = await opener.open(batch, look)
        if stamp is not None and (best is None or stamp.timestamp_ms > best.timestamp_ms):
            best = TimedOffset(*stamp, batch.leader_epoch)
    return best
