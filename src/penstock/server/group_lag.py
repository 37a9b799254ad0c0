"""How far the groups that are coordinated here are behind, looked at when somebody wants to know.

Whoever coordinates a group knows what it has committed; where logs end, and how old the first record is that was not
consumed, their leaders know. So it asks them, as any client would. A timestamp that was read once is not read again
as long as the group stays where it is.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.lag import PartitionLag, lag
from penstock.client.metadata import TopicPartition
from penstock.client.ports import ClientPorts
from penstock.coordinator.groups import GroupShard
from penstock.server.group_coordinator import GroupCoordinator

logger = logging.getLogger("penstock.groups")

LOOK_S: Final = 3.0
"""Who wants to know waits no longer; then it is told what was known before."""
ASK_MS: Final = 2_000


class LagSurvey:
    """See the module. `address` is where this node's own clients find it, `most` how many partitions are looked at."""

    def __init__(
        self, groups: GroupCoordinator, ports: ClientPorts, address: Callable[[], str], most: Callable[[], int]
    ) -> None:
        self.found: dict[str, list[PartitionLag]] = {}
        """By group, as of the last look."""
        self.left_out = 0
        """Partitions of groups that were not looked at, because there are too many."""
        self._groups = groups
        self._ports = ports
        self._address = address
        self.most = most
        self._cluster: Cluster | None = None
        self._known: dict[tuple[TopicPartition, int], int] = {}

    async def stop(self) -> None:
        """Closes its connections."""
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    def shards(self) -> Iterator[GroupShard]:
        """Those that are active here."""
        for driven in list(self._groups.shards.values()):
            shard = driven.shard
            if shard is not None:
                yield shard

    async def look(self) -> None:
        """Looks at all groups."""
        committed = self._committed()
        self.found = {group: found for group, found in self.found.items() if group in committed}
        if not committed:
            return
        if self._cluster is None:
            self._cluster = Cluster(
                self._address(),
                ports=self._ports,
                client_id="penstock-lag",
                timeout_ms=ASK_MS,
                request_timeout_ms=ASK_MS,
            )
        known: dict[tuple[TopicPartition, int], int] = {}
        try:
            async with asyncio.timeout(LOOK_S):
                for group, offsets in committed.items():
                    try:
                        self.found[group] = await lag(self._cluster, offsets, known=self._known, noted=known)
                    except ClientError as error:
                        logger.debug("How far %s is behind is not known: %s.", group, error)
        except TimeoutError:
            self._known |= known
        else:
            self._known = known

    def _committed(self) -> dict[str, dict[TopicPartition, int]]:
        found: dict[str, dict[TopicPartition, int]] = {}
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
