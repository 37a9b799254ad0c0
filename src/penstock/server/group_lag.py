"""How far the groups that are coordinated here are behind, looked at when somebody wants to know.

Whoever coordinates a group knows what it has committed; where logs end, and how old the first record is that was not
consumed, their leaders know. So it asks them, as any client would, all at once. What a leader does not tell in time,
and what nobody leads, is not known: an old number would look like a true one. A timestamp that was read once is not
read again as long as the group stays where it is.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from penstock.client.bootstrap import Address, parse_address
from penstock.client.errors import ClientError
from penstock.client.lag import PartitionLag
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.coordinator.groups import GroupShard
from penstock.server.advertised import brokers_for
from penstock.server.controller_runner import ControllerRunner
from penstock.server.group_coordinator import GroupCoordinator
from penstock.server.leader_look import LeaderLook, Place, Span

logger = logging.getLogger("penstock.groups")

LOOK_S: Final = 3.0
"""Who wants to know waits no longer; then it is told what is known by then."""

Committed = dict[TopicPartition, int]


class Standing(NamedTuple):
    """Where a group is in one partition."""

    partition: TopicPartition
    committed: int
    lag: PartitionLag | None = None
    """None if it is not known where the log ends."""
    is_age_known: bool = False
    """Whether the first record that was not consumed was looked at, if there is one."""


class LagSurvey:
    """See the module. `address` is where this node's own clients find it, `most` how many partitions are looked at."""

    def __init__(
        self,
        groups: GroupCoordinator,
        controller: ControllerRunner,
        ports: ClientPorts,
        address: Callable[[], str],
        most: Callable[[], int],
    ) -> None:
        self.found: dict[str, list[Standing]] = {}
        """By group, as of the last look."""
        self.left_out = 0
        """Partitions of groups that were not looked at, because there are too many."""
        self.most = most
        self._groups = groups
        self._controller = controller
        self._ports = ports
        self._address = address
        self._leaders: dict[Address, LeaderLook] = {}
        self._timestamps: dict[Place, int | None] = {}

    async def stop(self) -> None:
        """Closes its connections."""
        await self._keep(())

    def shards(self) -> Iterator[GroupShard]:
        """Those that are active here."""
        for driven in list(self._groups.shards.values()):
            shard = driven.shard
            if shard is not None:
                yield shard

    async def look(self) -> None:
        """Looks at all groups."""
        committed = self._committed()
        offsets: dict[TopicPartition, set[int]] = {}
        for each in committed.values():
            for partition, offset in each.items():
                offsets.setdefault(partition, set()).add(offset)
        asked = self._by_leader(offsets)
        await self._keep(asked)
        spans: dict[TopicPartition, Span] = {}
        await asyncio.gather(
            *(
                self._ask(address, {each: offsets[each] for each in partitions}, spans)
                for address, partitions in asked.items()
            )
        )
        self.found = {group: self._standings(each, spans) for group, each in committed.items()}
        self._forget(offsets, spans)

    async def _ask(
        self, address: Address, offsets: dict[TopicPartition, set[int]], spans: dict[TopicPartition, Span]
    ) -> None:
        leader = self._leaders.get(address)
        if leader is None:
            leader = self._leaders[address] = LeaderLook(address, self._ports)
        try:
            async with asyncio.timeout(LOOK_S):
                spans |= (found := await leader.spans(list(offsets)))
                unread = {each: self._unread(each, offsets[each], span) for each, span in found.items()}
                await leader.first_timestamps(unread, found, self._timestamps)
        except (ClientError, TimeoutError) as error:
            logger.debug("How far groups are behind in what %s leads is not all known: %s.", address, error)

    def _unread(self, partition: TopicPartition, offsets: set[int], span: Span) -> set[int]:
        """Where the first records are whose timestamps are not known yet."""
        begins = {max(offset, span.start) for offset in offsets}
        return {each for each in begins if each < span.end and (partition, each) not in self._timestamps}

    def _forget(self, offsets: dict[TopicPartition, set[int]], spans: dict[TopicPartition, Span]) -> None:
        """Timestamps of where no group is any more, and where there was no record, as there may be one next time."""
        places = {
            (partition, max(offset, spans[partition].start) if partition in spans else offset)
            for partition, each in offsets.items()
            for offset in each
        }
        self._timestamps = {place: at for place, at in self._timestamps.items() if at is not None and place in places}

    def _standings(self, committed: Committed, spans: dict[TopicPartition, Span]) -> list[Standing]:
        now_ms = self._ports.clock.wall_ms()
        found: list[Standing] = []
        for partition, offset in sorted(committed.items()):
            span = spans.get(partition)
            if span is None:
                found.append(Standing(partition, offset))
                continue
            place = (partition, max(offset, span.start))
            lag = PartitionLag(partition, offset, *span, self._timestamps.get(place), now_ms)
            found.append(Standing(partition, offset, lag, not lag.records or place in self._timestamps))
        return found

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        """By the addresses of those who lead; without those that nobody leads."""
        controller, own = self._controller, self._address()
        image = controller.image
        addresses = {
            broker.broker_id: Address(*address)
            for broker, address in brokers_for(image, controller.settings, controller.node_id, own)
        }
        addresses[controller.node_id] = parse_address(own)
        found: dict[Address, list[TopicPartition]] = {}
        for each in partitions:
            topic = image.topics.get(each.topic)
            placed = None if topic is None else topic.partitions.get(each.partition)
            address = None if placed is None else addresses.get(placed.leader)
            if address is not None:
                found.setdefault(address, []).append(each)
        return found

    async def _keep(self, addresses: Collection[Address]) -> None:
        """Closes the connections to all others."""
        gone = [self._leaders.pop(each) for each in list(self._leaders) if each not in addresses]
        await asyncio.gather(*(each.close() for each in gone))

    def _committed(self) -> dict[str, Committed]:
        found: dict[str, Committed] = {}
        left, self.left_out = self.most(), 0
        for shard in self.shards():
            for group in sorted(shard.offsets.groups()):
                offsets = {
                    TopicPartition(topic, index): each.offset
                    for (topic, index), each in shard.offsets.of(group).items()
                    if index < self._partition_count(shard, topic)
                }
                if len(offsets) > left:
                    self.left_out += len(offsets)
                elif offsets:
                    left -= len(offsets)
                    found[group] = offsets
        return found

    @staticmethod
    def _partition_count(shard: GroupShard, topic: str) -> int:
        known = shard.topics.by_name.get(topic)
        return 0 if known is None else known.partitions
