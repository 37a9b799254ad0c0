"""Writes group events into a topic of their own, for operators: best effort, and without delaying requests.

Events that occur within a short time are written together, one batch per partition. They go to a partition that this
node leads, so that no request to another broker is needed: the group's own partition if this node leads it. Events that
cannot be written are dropped. The topic is created when the first event occurs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Final

from penstock.coordinator.placement import partition_of
from penstock.model.errors import ProtocolError
from penstock.model.group_events import TOPIC, GroupEvent
from penstock.model.ports import Clock
from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partitions import Partitions

logger = logging.getLogger("penstock.groups")

HELD_MAX: Final = 1_000
"""Events that wait to be written; further events are dropped."""
WAIT_S: Final = 0.05
"""Events within this time are written together."""
MAKE_AGAIN_MS: Final = 60_000
"""Time between two attempts to create the topic."""


class GroupEventLog:
    """See the module."""

    def __init__(
        self,
        controller: ControllerRunner,
        clock: Clock,
        partitions: Partitions,
        make_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """`make_topic` returns when the topic exists or could not be created."""
        self._make = make_topic
        self._is_stopped = False
        self._controller = controller
        self._clock = clock
        self._partitions = partitions
        self._held: list[GroupEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._making: asyncio.Task[None] | None = None
        self._not_before_ms = 0

    async def stop(self) -> None:
        """Writes the events that wait, and stops."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        self._is_stopped = True

    def tell(self, events: Sequence[GroupEvent]) -> None:
        """Queues events to be written within WAIT_S."""
        self._held += events[: HELD_MAX - len(self._held)]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._write)

    def _write(self) -> None:
        self._timer = None
        topic = self._controller.image.topics.get(TOPIC)
        if topic is None:
            self._make_topic()
            return
        held, self._held = self._held, []
        count = len(topic.partitions)
        led = [found for index in range(count) if (found := self._partitions.named(TOPIC, index)) is not None]
        batches: dict[int, list[GroupEvent]] = {}
        for event in held if led else ():
            index = partition_of(event.group, count)
            if self._partitions.named(TOPIC, index) is None:
                index = led[partition_of(event.group, len(led))].index
            batches.setdefault(index, []).append(event)
        for index, events in batches.items():
            partition = self._partitions.named(TOPIC, index)
            if partition is not None:
                self._append(partition, events)

    def _append(self, partition: Partition, events: Sequence[GroupEvent]) -> None:
        builder = BatchBuilder()
        for event in events:
            builder.append(event.group.encode(), event.encode(), (), event.at_ms)
        try:
            rules = _rules(partition.rules.batch_bytes_max)
            partition.append(builder.build(), now_ms=self._clock.wall_ms(), rules=rules)
        except (ProtocolError, OSError) as error:
            logger.warning("What happened to groups is not told: %s.", error)

    def _make_topic(self) -> None:
        now_ms = self._clock.monotonic_ms()
        is_making = self._making is not None and not self._making.done()
        if self._is_stopped or is_making or now_ms < self._not_before_ms:
            return
        self._not_before_ms = now_ms + MAKE_AGAIN_MS
        self._making = asyncio.get_running_loop().create_task(self._made())

    async def _made(self) -> None:
        await self._make()
        if TOPIC in self._controller.image.topics:
            self.tell(())


@cache
def _rules(batch_bytes_max: int) -> Rules:
    """Rules for batches of our own, which are not validated record by record."""
    return Rules(batch_bytes_max=batch_bytes_max, is_from_client=False, timestamp_after_ms_max=None)
