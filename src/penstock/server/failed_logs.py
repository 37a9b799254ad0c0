"""Logs that have failed while this broker leads them: it gives way to others who are in sync.

The controller is asked (AlterPartition without this broker) until the metadata log says that somebody else leads, or
that nobody else could. Each request names the leader epoch and the version of the partition that it is about: one that
comes late does nothing.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata.cluster_commands import AlterPartition, NewIsr
from penstock.metadata.names import METADATA_TOPIC
from penstock.replication.settings import CHANGES_PER_REQUEST_MAX
from penstock.server.controller_runner import ControllerRunner
from penstock.server.membership import Membership
from penstock.server.replica_messages import ReplicaMessages
from penstock.server.replica_runner import ReplicaRunner

LOOK_S: Final = 1.0


class FailedLogs:
    """See the module."""

    def __init__(
        self,
        directory: DataDirectory,
        controller: ControllerRunner,
        membership: Membership,
        replicas: ReplicaRunner,
        messages: ReplicaMessages,
    ) -> None:
        self._directory = directory
        self._controller = controller
        self._membership = membership
        self._replicas = replicas
        self._messages = messages
        self._wake = asyncio.Event()
        replicas.on_failed = self._wake.set

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            changes = tuple(self.changes())[:CHANGES_PER_REQUEST_MAX]
            if changes:
                command = AlterPartition(self._controller.node_id, self._membership.epoch, changes)
                await self._messages.change(command)  # the metadata log tells what came of it
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    def changes(self) -> Iterator[NewIsr]:
        """What to ask for now; the replication core is told of every log that has failed."""
        for log in list(self._directory.logs.values()):
            if log.offline_reason is not None and log.identity.topic != METADATA_TOPIC:
                self._replicas.failed(log)
                yield from self._without_me(log)

    def _without_me(self, log: Log) -> Iterator[NewIsr]:
        image, node_id = self._controller.image, self._controller.node_id
        topic_id = bytes.fromhex(log.identity.topic_id)
        topic = image.topic_by_id(topic_id)
        placed = None if topic is None else topic.partitions.get(log.identity.partition)
        if placed is None or placed.leader != node_id:
            return
        brokers = [image.brokers[each] for each in placed.isr if each != node_id and each in image.brokers]
        others = tuple((each.broker_id, each.epoch) for each in brokers if each.is_active)
        if others:
            yield NewIsr(topic_id, log.identity.partition, placed.leader_epoch, placed.partition_epoch, others)
