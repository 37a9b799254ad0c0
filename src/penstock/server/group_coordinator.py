"""The coordinator of groups on this node: a shard for every partition of `__consumer_offsets` that is led here.

Shards come with leadership and go with it, as the image and the replicas say. A request about a group goes to its shard
or is told where it stands: elsewhere, or not loaded yet. Topics that are deleted are forgotten by all shards.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Set
from typing import Any, Final

from penstock.coordinator.chronicle import ChronicledShard
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from penstock.coordinator.settings import GroupSettings
from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import GROUP, Image
from penstock.metadata.image import Partition as Placed
from penstock.model.errors import ErrorCode
from penstock.model.ports import Clock, Entropy
from penstock.replication.ports import Key
from penstock.server.controller_runner import ControllerRunner
from penstock.server.group_events import GroupEventLog
from penstock.server.group_log import PartitionLog
from penstock.server.group_shard import DrivenShard
from penstock.server.group_topics import GroupTopics
from penstock.server.partitions import Partitions

logger = logging.getLogger("penstock.groups")

HEARD_MAX: Final = 65_536
"""Members of whom is known on which connection they were last heard."""


class GroupCoordinator:
    """See the module. `lease` tells until when nobody else can lead what is led here, as far as sessions decide."""

    def __init__(self, controller: ControllerRunner, clock: Clock, entropy: Entropy, partitions: Partitions) -> None:
        self.events = GroupEventLog(controller, clock, partitions)
        self._controller = controller
        self._clock = clock
        self._entropy = entropy
        self._partitions = partitions
        self._topics = GroupTopics(controller)
        self._settings = GroupSettings.of(controller.settings)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._heard: dict[tuple[str, str], int] = {}
        self._is_stopped = False
        self._counted: tuple[Image | None, int] = (None, 0)
        self.shards: dict[int, DrivenShard] = {}
        """By partition."""
        self.lease: Callable[[], int] = _no_lease
        controller.subscribe(self._on_image)

    async def stop(self) -> None:
        """Whoever waits is sent elsewhere, and nobody is taken any more."""
        self._is_stopped = True
        for index in list(self.shards):
            self.shards.pop(index).resign()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.events.stop()

    # --- who leads ------------------------------------------------------------------------------------------------

    def led(self, key: Key, log: Log, _placed: Placed, _start_offset: int) -> None:
        """A partition is led here in a new epoch."""
        if log.identity.topic == OFFSETS_TOPIC:
            self._look(key[1])

    def leased(self) -> None:
        """The controller has answered: what is led here is led for longer."""
        for shard in list(self.shards.values()):
            shard.go_on()

    def _on_image(self, changes: Changes, image: Image) -> None:
        self._topics.learn(changes, image)
        if changes.has_new_broker_settings:
            self._settings = GroupSettings.of(self._controller.settings)
            for shard in self.shards.values():
                if (found := shard.shard) is not None:
                    found.settings = self._settings
        for topic in changes.topics_created:
            if topic.name == OFFSETS_TOPIC:
                self._look_at(topic.partitions)
        for change in changes.topics_changed:
            if change.new.name == OFFSETS_TOPIC:
                self._look_at(number for number, _, _ in change.partitions)
        if changes.topics_deleted:
            self._deleted({topic.name for topic in changes.topics_deleted})

    def _deleted(self, names: Set[str]) -> None:
        if OFFSETS_TOPIC in names:
            self._look_at(self.shards)
        for shard in list(self.shards.values()):
            shard.topics_deleted(names)

    def _look_at(self, indexes: Iterable[int]) -> None:
        for index in list(indexes):
            self._look(index)

    def _look(self, index: int) -> None:
        """Brings one shard to what the image and the replicas say now."""
        topic = self._controller.image.topics.get(OFFSETS_TOPIC)
        placed = None if topic is None else topic.partitions.get(index)
        partition = self._partitions.named(OFFSETS_TOPIC, index)
        shard = self.shards.get(index)
        is_led = (
            topic is not None
            and placed is not None
            and placed.leader == self._controller.node_id
            and partition is not None
            and partition.topic_id == topic.topic_id
        )
        if not is_led or self._is_stopped:
            if shard is not None:
                del self.shards[index]
                shard.resign()
            return
        assert partition is not None
        if shard is None:
            log = PartitionLog(self._partitions, index)
            shard = self.shards[index] = DrivenShard(
                index, self._make, log, self._clock, self._leased_until, self._run, self._look, self.events.tell
            )
        shard.elect(partition)

    def _make(self) -> GroupShard:
        broker = self._controller.node_id
        return ChronicledShard(
            self._settings, self._entropy, self._topics.now, self._settings_of, self._held_bytes, broker=broker
        )

    def _held_bytes(self) -> int:
        found = (shard.shard for shard in self.shards.values())
        return sum(each.held_bytes for each in found if each is not None)

    def _settings_of(self, group_id: str) -> GroupSettings:
        own = self._controller.image.config(GROUP, group_id)
        return self._settings.under(own) if own else self._settings

    def _leased_until(self) -> int:
        return self.lease()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("A coordinator failed by a mistake of ours: restart the node.", exc_info=error)

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def protocols(self) -> Collection[str]:
        """Kinds of groups that are served."""
        return self._settings.protocols

    @property
    def partition_count(self) -> int:
        """How many partitions groups are spread over; 0 while there is no topic for them."""
        image, count = self._counted
        if image is not self._controller.image:
            image = self._controller.image
            topic = image.topics.get(OFFSETS_TOPIC)
            count = 0 if topic is None else len(topic.partitions)
            self._counted = image, count
        return count

    def index_of(self, group_id: str) -> int:
        """The partition that looks after a group; there must be some."""
        return partition_of(group_id, self.partition_count)

    def place(self, group_id: str) -> tuple[DrivenShard | None, ErrorCode]:
        """The shard that looks after a group, or why it is not here."""
        if self._is_stopped or not self.partition_count:
            return None, ErrorCode.NOT_COORDINATOR
        index = self.index_of(group_id)
        shard = self.shards.get(index)
        return (None, self._why_missing(index)) if shard is None else (shard, ErrorCode.NONE)

    def _why_missing(self, index: int) -> ErrorCode:
        placed = self._controller.image.topics[OFFSETS_TOPIC].partitions.get(index)
        is_coming = placed is not None and placed.leader == self._controller.node_id
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_coming else ErrorCode.NOT_COORDINATOR

    def begin(self, shard: DrivenShard, command: Any, elements: int = 1) -> "asyncio.Future[tuple[Any, ErrorCode]]":
        """Hands in a command about so many elements, behind all that were handed in before."""
        future: asyncio.Future[tuple[Any, ErrorCode]] = asyncio.get_running_loop().create_future()
        shard.ask(command, lambda reply, code: _settle(future, reply, code), elements)
        return future

    async def ask(self, shard: DrivenShard, command: Any, elements: int = 1) -> tuple[Any, ErrorCode]:
        """The reply to a command about so many elements, or None and why there is none."""
        future: asyncio.Future[tuple[Any, ErrorCode]] = asyncio.get_running_loop().create_future()
        ticket = shard.ask(command, lambda reply, code: _settle(future, reply, code), elements)
        try:
            return await future
        finally:
            shard.forget(ticket)

    def is_latest(self, group_id: str, member_id: str, connection: int) -> bool:
        """Whether no later connection has spoken for a member: what comes on an earlier one was delayed, and is old."""
        heard, key = self._heard, (group_id, member_id)
        latest = heard.pop(key, connection)
        heard[key] = max(latest, connection)
        if len(heard) > HEARD_MAX:
            del heard[next(iter(heard))]  # the one that was silent for longest
        return connection >= latest


def _settle(future: "asyncio.Future[tuple[Any, ErrorCode]]", reply: Any, code: ErrorCode) -> None:
    if not future.done():
        future.set_result((reply, code))


def _no_lease() -> int:
    return 0
