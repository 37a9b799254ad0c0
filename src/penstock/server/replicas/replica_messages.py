"""Requests of replicas to other nodes: Fetch to leaders; ISR changes and damage reports to the controller.

Leaders are reached through the inter-broker listener alone. A leader without it is not fetched from.
"""

import logging
from contextlib import suppress
from typing import Final

from penstock.client.connection.pool import Pool
from penstock.client.errors import ClientError
from penstock.client.ports import ClientPorts
from penstock.metadata.cluster_commands import (
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    AssignReplicas,
    NewIsr,
)
from penstock.model.errors import ProtocolError
from penstock.server.connections.advertised import address_of
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.membership.broker_grace import BrokerGrace
from penstock.wire.messages import alter_partition as altering
from penstock.wire.messages import assign_replicas_to_dirs as assigning
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

logger = logging.getLogger("penstock.replicas")

LANE: Final = "replicas"
CONNECT_MS: Final = 1_000
CHANGE_MS: Final = 1_500
"""How long the controller may take to answer before another connection is tried; producers may wait meanwhile."""


class ReplicaMessages:
    """See the module. Each source has one connection with one fetch in flight."""

    def __init__(
        self,
        ports: ClientPorts,
        channel: ControllerChannel,
        controller: ControllerRunner,
        broker_grace: BrokerGrace,
        listener: str,
    ) -> None:
        """`listener` is the name of the inter-broker listener."""
        self._listener = listener
        self._lacking: dict[int, None] = {}
        """Leaders that lack the inter-broker listener; each is reported once."""
        self._channel = channel
        self._controller = controller
        self._broker_grace = broker_grace
        name = f"replica-{controller.node_id}"
        self._pool = Pool(ports, client_id=name, login=None, connect_timeout_ms=CONNECT_MS, timeout_ms=CHANGE_MS)

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()

    async def fetch(self, source: int, request: FetchRequest) -> FetchResponse | None:
        """Sends a fetch to a leader; returns None if there is no response."""
        broker = self._controller.image.brokers.get(source)
        if broker is None:
            return None
        address = address_of(broker, self._listener)
        if address is None:
            if source not in self._lacking:
                self._lacking[source] = None
                logger.warning(
                    "Nothing is fetched from broker %d: it has no listener %s, which this broker's "
                    "inter.broker.listener.name names; name the same listener on all brokers.",
                    source,
                    self._listener,
                )
            return None
        self._lacking.pop(source, None)
        try:
            connection = await self._pool.connection(address, LANE)
            timeout_ms = self._controller.settings.number("replica.socket.timeout.ms")
            response = await connection.ask(request, FetchResponse, timeout_ms=timeout_ms)
        except (ClientError, ProtocolError, OSError):
            self._broker_grace.lost(source)
            return None
        self._broker_grace.answered(source, connection)
        return response

    async def change(self, command: AlterPartition) -> AlteredPartitions | None:
        """Sends an ISR change to the controller; returns None if it is unknown whether it arrived."""
        topics: dict[bytes, list[altering.PartitionData]] = {}
        for change in command.partitions:
            topics.setdefault(change.topic_id, []).append(_to_wire(change))
        request = altering.AlterPartitionRequest(
            broker_id=command.broker_id,
            broker_epoch=command.broker_epoch,
            topics=[altering.TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )
        try:
            response = await self._channel.ask(
                request, altering.AlterPartitionResponse, timeout_ms=2 * CHANGE_MS, answer_ms=CHANGE_MS, lane=LANE
            )
        except ProtocolError:
            return None
        found = [
            AlteredPartition(topic.topic_id, part.partition_index, part.error_code)
            for topic in response.topics
            for part in topic.partitions
        ]
        return AlteredPartitions(tuple(found), response.error_code)

    async def assign(self, command: AssignReplicas) -> None:
        """Reports the directories of replicas, or damage, to the controller. The metadata log shows the outcome."""
        directories: dict[bytes, dict[bytes, list[assigning.PartitionData]]] = {}
        for each in command.replicas:
            topics = directories.setdefault(each.directory, {})
            topics.setdefault(each.topic_id, []).append(assigning.PartitionData(partition_index=each.index))
        request = assigning.AssignReplicasToDirsRequest(
            broker_id=command.broker_id,
            broker_epoch=command.broker_epoch,
            directories=[
                assigning.DirectoryData(
                    id=directory,
                    topics=[
                        assigning.TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
        with suppress(ProtocolError):
            await self._channel.ask(
                request,
                assigning.AssignReplicasToDirsResponse,
                timeout_ms=2 * CHANGE_MS,
                answer_ms=CHANGE_MS,
                lane=LANE,
            )


def _to_wire(change: NewIsr) -> altering.PartitionData:
    return altering.PartitionData(
        partition_index=change.index,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=[altering.BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in change.isr],
        leader_recovery_state=change.leader_recovery_state,
        partition_epoch=change.partition_epoch,
    )
