"""The group coordinator of this node: one shard for each partition of `__consumer_offsets` that this node leads.

A shard is created and ended with leadership, as the image and the replicas report it. A request about a group goes to
its shard, or is refused with the reason: another node coordinates the group, or the shard is still loading. All shards
drop the offsets of deleted topics.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Set
from typing import Final, TypeAlias

from penstock.coordinator.groups import GroupShard
from penstock.coordinator.history import GroupHistory
from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from penstock.coordinator.requests import Ask
from penstock.coordinator.settings import GroupSettings
from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import GROUP, Image
from penstock.metadata.image import Partition as Placed
from penstock.model.errors import ErrorCode
from penstock.model.ports import Clock, Entropy
from penstock.replication.ports import Key
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.group_events import GroupEventLog
from penstock.server.groups.group_log import PartitionLog
from penstock.server.groups.group_shard import DrivenShard, Reply, ShardPort
from penstock.server.groups.group_topics import GroupTopics
from penstock.server.loop.reporting import Reporter
from penstock.server.membership.lease import Lease
from penstock.server.partitions.partitions import Partitions

logger = logging.getLogger("penstock.groups")

Answered: TypeAlias = tuple[Reply | None, ErrorCode]
"""The reply, or None and the error code."""
HEARD_MAX: Final = 65_536
"""Size of the map from each member to the connection of its last request."""


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        controller: ControllerRunner,
        clock: Clock,
        entropy: Entropy,
        partitions: Partitions,
        lease: Lease,
        events: GroupEventLog,
    ) -> None:
        self.events = events
        self._controller = controller
        self._clock = clock
        self._entropy = entropy
        self._partitions = partitions
        self._topics = GroupTopics(controller)
        self._settings = GroupSettings.of(controller.settings)
        self._port = ShardPort(clock)
        self._heard: dict[tuple[str, str], int] = {}
        self._is_stopped = False
        self._counted: tuple[Image | None, int] = (None, 0)
        self._reporter = Reporter(logger)
        self.shards: dict[int, DrivenShard] = {}
        """Shards by partition index."""
        self._lease = lease
        lease.extended.connect(self._leased)
        controller.subscribe(self._on_image)

    async def stop(self) -> None:
        """Ends all shards: waiting and new requests get NOT_COORDINATOR."""
        self._is_stopped = True
        for index in list(self.shards):
            self.shards.pop(index).resign()
        await self._port.stop()
        await self.events.stop()

    # --- leadership -----------------------------------------------------------------------------------------------

    def led(self, key: Key, log: Log, _placed: Placed, _start_offset: int) -> None:
        """Handles that this node leads a partition in a new leader epoch."""
        if log.identity.topic == OFFSETS_TOPIC:
            self._look(key[1])

    def _leased(self) -> None:
        """Passes an extended lease on to the shards."""
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
        """Creates, elects or ends one shard according to the image and the replicas."""
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
            history = GroupHistory(self._controller.node_id)
            shard = self.shards[index] = DrivenShard(
                index,
                self._make,
                history,
                log,
                self._port,
                self._lease,
                self._look,
                self.events.tell,
                self._reporter,
            )
        shard.elect(partition)

    def _make(self) -> GroupShard:
        return GroupShard(self._settings, self._entropy, self._topics.now, self._settings_of, self._held_bytes)

    def _held_bytes(self) -> int:
        found = (shard.shard for shard in self.shards.values())
        return sum(each.held_bytes for each in found if each is not None)

    def _settings_of(self, group_id: str) -> GroupSettings:
        own = self._controller.image.config(GROUP, group_id)
        return self._settings.under(own) if own else self._settings

    # --- requests -------------------------------------------------------------------------------------------------

    @property
    def protocols(self) -> Collection[str]:
        """The group protocols that are enabled."""
        return self._settings.protocols

    @property
    def partition_count(self) -> int:
        """Number of partitions of the offsets topic; 0 while the topic does not exist."""
        image, count = self._counted
        if image is not self._controller.image:
            image = self._controller.image
            topic = image.topics.get(OFFSETS_TOPIC)
            count = 0 if topic is None else len(topic.partitions)
            self._counted = image, count
        return count

    def index_of(self, group_id: str) -> int:
        """The offsets partition of a group; the topic must exist."""
        return partition_of(group_id, self.partition_count)

    def place(self, group_id: str) -> tuple[DrivenShard | None, ErrorCode]:
        """The shard that coordinates a group, or None and the error code."""
        if self._is_stopped or not self.partition_count:
            return None, ErrorCode.NOT_COORDINATOR
        index = self.index_of(group_id)
        shard = self.shards.get(index)
        return (None, self._why_missing(index)) if shard is None else (shard, ErrorCode.NONE)

    def _why_missing(self, index: int) -> ErrorCode:
        placed = self._controller.image.topics[OFFSETS_TOPIC].partitions.get(index)
        is_coming = placed is not None and placed.leader == self._controller.node_id
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_coming else ErrorCode.NOT_COORDINATOR

    def begin(self, shard: DrivenShard, command: Ask[Reply], elements: int = 1) -> "asyncio.Future[Answered[Reply]]":
        """Submits a command that counts as `elements`, after all commands submitted before."""
        future: asyncio.Future[Answered[Reply]] = asyncio.get_running_loop().create_future()
        shard.ask(command, lambda reply, code: _settle(future, reply, code), elements)
        return future

    async def ask(self, shard: DrivenShard, command: Ask[Reply], elements: int = 1) -> Answered[Reply]:
        """The reply to a command that counts as `elements`, or None and the error code."""
        future: asyncio.Future[Answered[Reply]] = asyncio.get_running_loop().create_future()
        ticket = shard.ask(command, lambda reply, code: _settle(future, reply, code), elements)
        try:
            return await future
        finally:
            shard.forget(ticket)

    def is_latest(self, group_id: str, member_id: str, connection: int) -> bool:
        """Whether the member has sent nothing on a later connection; otherwise this request was delayed, and is old."""
        heard, key = self._heard, (group_id, member_id)
        latest = heard.pop(key, connection)
        heard[key] = max(latest, connection)
        if len(heard) > HEARD_MAX:
            del heard[next(iter(heard))]  # the member with the oldest request
        return connection >= latest


def _settle(future: "asyncio.Future[Answered[Reply]]", reply: Reply | None, code: ErrorCode) -> None:
    if not future.done():
        future.set_result((reply, code))
