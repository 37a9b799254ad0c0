"""Consumer lag of the groups that this node coordinates, computed on demand.

The coordinator has the committed offsets; the leaders have the end offsets and the timestamp of the first record that
was not consumed. The coordinator queries all leaders at once, as a client. Lag is unknown where a leader does not
answer in time or a partition has no leader: a stale number would look valid. A timestamp is not read again while the
committed offset of the group stays the same.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from penstock.client.admin.lag import PartitionLag
from penstock.client.bootstrap import Address, parse_address
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.coordinator.groups import GroupShard
from penstock.server.connections.advertised import address_of
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.end_offset_query import EndOffsetQuery, Place, Span
from penstock.server.groups.group_coordinator import GroupCoordinator

logger = logging.getLogger("penstock.groups")

LOOK_S: Final = 3.0
"""Time limit of a survey per leader; results that arrive later are left out."""

Committed = dict[TopicPartition, int]


class Standing(NamedTuple):
    """Position of a group in one partition."""

    partition: TopicPartition
    committed: int
    lag: PartitionLag | None = None
    """None if the end of the log is unknown."""
    is_age_known: bool = False
    """Whether the timestamp of the first unconsumed record was read, or there is no such record."""


class LagSurvey:
    """See the module."""

    def __init__(
        self,
        groups: GroupCoordinator,
        controller: ControllerRunner,
        ports: ClientPorts,
        listener: str,
        address: str,
        most: Callable[[], int],
    ) -> None:
        """`listener` is the name of the inter-broker listener, `address` where this node is bound to it.

        `most` returns how many partitions a survey may cover.
        """
        self.found: dict[str, list[Standing]] = {}
        """Results of the last survey, by group."""
        self.left_out = 0
        """Partitions of groups that the last survey left out because of the limit `most`."""
        self.most = most
        self._groups = groups
        self._controller = controller
        self._ports = ports
        self._listener = listener
        self._address = address
        self._leaders: dict[Address, EndOffsetQuery] = {}
        self._timestamps: dict[Place, int | None] = {}

    async def stop(self) -> None:
        """Closes all connections to leaders."""
        await self._keep(())

    def shards(self) -> Iterator[GroupShard]:
        """The shards that are active on this node."""
        for driven in list(self._groups.shards.values()):
            shard = driven.shard
            if shard is not None:
                yield shard

    async def look(self) -> None:
        """Surveys all groups."""
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
            leader = self._leaders[address] = EndOffsetQuery(address, self._ports)
        try:
            async with asyncio.timeout(LOOK_S):
                spans |= (found := await leader.spans(list(offsets)))
                unread = {each: self._unread(each, offsets[each], span) for each, span in found.items()}
                await leader.first_timestamps(unread, found, self._timestamps)
        except (ClientError, TimeoutError) as error:
            logger.debug("How far groups are behind in what %s leads is not all known: %s.", address, error)

    def _unread(self, partition: TopicPartition, offsets: set[int], span: Span) -> set[int]:
        """The offsets of first unconsumed records whose timestamps have not been read."""
        begins = {max(offset, span.start) for offset in offsets}
        return {each for each in begins if each < span.end and (partition, each) not in self._timestamps}

    def _forget(self, offsets: dict[TopicPartition, set[int]], spans: dict[TopicPartition, Span]) -> None:
        """Drops timestamps at offsets that no group has, and at offsets where there was no record yet."""
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
        """Partitions by the address of their leader, without those that have no leader."""
        image = self._controller.image
        addresses = {broker_id: address_of(broker, self._listener) for broker_id, broker in image.brokers.items()}
        addresses[self._controller.node_id] = parse_address(self._address)
        found: dict[Address, list[TopicPartition]] = {}
        for each in partitions:
            topic = image.topics.get(each.topic)
            placed = None if topic is None else topic.partitions.get(each.partition)
            address = None if placed is None else addresses.get(placed.leader)
            if address is not None:
                found.setdefault(address, []).append(each)
        return found

    async def _keep(self, addresses: Collection[Address]) -> None:
        """Closes the connections to all other addresses."""
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
