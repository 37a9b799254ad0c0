"""What happens to groups, written into a topic of its own, for whoever asks why: best effort, and never in the way.

Events of a moment make one batch. It goes into a partition that is led here, so that nobody else has to be asked: the
group's own, if that is one of them. What cannot be written is forgotten. The topic is made when there is something to
tell for the first time.
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
from penstock.server.controller_runner import ControllerRunner
from penstock.server.partition import Partition
from penstock.server.partitions import Partitions

logger = logging.getLogger("penstock.groups")

HELD_MAX: Final = 1_000
"""Events that wait for the topic to be there; later ones are not told."""
WAIT_S: Final = 0.05
"""What happens within this time is written together."""
MAKE_AGAIN_MS: Final = 60_000
"""A topic that could not be made is tried again after this."""


class GroupEventLog:
    """See the module. `make` makes the topic, and returns when it is there or could not be made."""

    def __init__(self, controller: ControllerRunner, clock: Clock, partitions: Partitions) -> None:
        self.make: Callable[[], Awaitable[object]] | None = None
        self._controller = controller
        self._clock = clock
        self._partitions = partitions
        self._held: list[GroupEvent] = []
        self._timer: asyncio.TimerHandle | None = None
        self._making: asyncio.Task[None] | None = None
        self._not_before_ms = 0

    async def stop(self) -> None:
        """Writes what there is, and no more."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        self.make = None

    def tell(self, events: Sequence[GroupEvent]) -> None:
        """Something happened; it is written soon."""
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
        if self.make is None or now_ms < self._not_before_ms or (self._making is not None and not self._making.done()):
            return
        self._not_before_ms = now_ms + MAKE_AGAIN_MS
        self._making = asyncio.get_running_loop().create_task(self._made())

    async def _made(self) -> None:
        if self.make is not None:
            await self.make()
            if TOPIC in self._controller.image.topics:
                self.tell(())


@cache
def _rules(batch_bytes_max: int) -> Rules:
    """Our own batches need not be opened to be trusted."""
    return Rules(batch_bytes_max=batch_bytes_max, is_from_client=False, timestamp_after_ms_max=None)
