"""Writes snapshots of the metadata when the log has grown or the last snapshot is old."""

import asyncio
import logging
from typing import Final

from penstock.metadata.changes import Changes
from penstock.metadata.image import Image
from penstock.model.errors import ProtocolError
from penstock.model.ports import Clock
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.quorum.quorum_runner import QuorumRunner

logger = logging.getLogger("penstock.node")

PATIENT_TIMES: Final = 4
"""A snapshot waits for this node's logs until the metadata log has grown to this many times the limit."""


class MetadataSnapshots:
    """See the module. Call `start` when the node serves requests."""

    def __init__(
        self, controller: ControllerRunner, quorum: QuorumRunner, arrivals: TopicArrivals, clock: Clock
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._arrivals = arrivals
        self._clock = clock
        self._taken_ms = clock.monotonic_ms()
        self._under_way: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Checks on every change of the image whether a snapshot is due."""
        self._controller.subscribe(self._take_if_due)

    def cancel(self) -> "list[asyncio.Task[None]]":
        """Cancels the snapshot in progress; returns the tasks to wait for."""
        if self._under_way is None:
            return []
        self._under_way.cancel()
        return [self._under_way]

    def _take_if_due(self, _changes: Changes, _image: Image) -> None:
        settings = self._controller.settings
        limit_bytes = settings.number("metadata.log.max.record.bytes.between.snapshots")
        interval_ms = settings.number("metadata.log.max.snapshot.interval.ms")
        age_ms = self._clock.monotonic_ms() - self._taken_ms
        is_due = self._controller.bytes_since_snapshot >= limit_bytes or 0 < interval_ms <= age_ms
        if is_due and self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._take(limit_bytes))

    async def _take(self, limit_bytes: int) -> None:
        """Writes a snapshot once the logs of deleted topics are off this disk: it no longer records their deletion.

        If topics are created and deleted without pause, it does not wait: a log that is left over is reported and kept.
        """
        try:
            if self._arrivals.is_settled or self._controller.bytes_since_snapshot >= PATIENT_TIMES * limit_bytes:
                self._taken_ms = self._clock.monotonic_ms()
                end_offset, data = self._controller.snapshot_records()
                await self._quorum.snapshot(end_offset, data)
        except (ProtocolError, OSError) as error:
            logger.warning("A snapshot of the metadata could not be written, and is tried again later: %s.", error)
        finally:
            self._under_way = None
