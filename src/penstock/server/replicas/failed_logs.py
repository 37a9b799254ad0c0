"""Offline logs of this broker: moves their leadership to other brokers, and fetches damaged logs anew.

A log whose write or sync failed stays offline until the node restarts. If this broker leads it, the broker requests
another leader from the controller (AlterPartition without this broker) until the metadata log has one, or no other
replica can lead. Each request names the leader epoch and the partition epoch it applies to: a late one has no effect.

A damaged log (stored bytes differ from the bytes written) goes through these steps. Each is in the metadata log or on
disk, so that the broker continues at the same step after a crash.

    reported      The damage is reported to the controller (AssignReplicasToDirs, directory "lost"). It removes the
                  replica from the ISR and the ELR if another replica is in them, elects another leader, and begins a
                  new leader epoch. Otherwise this is the last copy: it stays eligible, and nothing more happens to it.
    set aside     Once the metadata log has the replica in neither the ISR nor the ELR, and another broker leads: the
                  log is renamed, and a new log is created in its place.
    assigned      The replica is reported as good again, and the new log is fetched from the leader.
    removed       Once the metadata log has the replica in the ISR, the log that was set aside is removed.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Identity, Log
from penstock.metadata.changes import Changes
from penstock.metadata.cluster_commands import AlterPartition, Assigned, AssignReplicas, NewIsr
from penstock.metadata.image import LOST_DIRECTORY, NO_LEADER, Image, Partition, Topic
from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ProtocolError
from penstock.replication.ports import Key
from penstock.replication.settings import CHANGES_PER_REQUEST_MAX
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.membership.membership import Membership
from penstock.server.replicas.log_reconciler import LogReconciler
from penstock.server.replicas.replica_messages import ReplicaMessages
from penstock.server.replicas.replica_runner import ReplicaRunner

logger = logging.getLogger("penstock.failed_logs")

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
        reconciler: LogReconciler,
    ) -> None:
        self._directory = directory
        self._controller = controller
        self._membership = membership
        self._replicas = replicas
        self._messages = messages
        self._reconciler = reconciler
        self._directory_id = bytes.fromhex(directory.identity["directory_id"])
        self._reported: dict[Key, None] = {}
        """Replicas of this broker that are marked as damaged in the metadata log."""
        topic_ids = [bytes.fromhex(each.topic_id) for each in directory.kept_aside.values()]
        self._deleted = {each for each in topic_ids if controller.was_deleted(each)}
        """Deleted topics of which logs may have been set aside."""
        self._warned: set[int] = set()
        self._wake = asyncio.Event()
        replicas.log_failed.connect(self._wake.set)
        controller.subscribe(self._on_image)
        for topic in controller.image.topics.values():
            for index, placed in topic.partitions.items():
                self._note(topic, index, placed)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._wake.clear()
            offline = self._offline()
            changes = tuple(self._changes(offline))[:CHANGES_PER_REQUEST_MAX]
            if changes:
                command = AlterPartition(self._controller.node_id, self._membership.epoch, changes)
                await self._messages.change(command)  # the metadata log shows the outcome
            await self.report()
            await self._replace(offline)
            await self._remove_replaced()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    def _offline(self) -> list[Log]:
        logs = self._directory.logs.values()
        found = [log for log in logs if log.offline_reason is not None or log.suspicion is not None]
        for log in found:
            if log.offline_reason is None:
                self._take_offline_if_others_have_it(log)
        return [log for log in found if log.offline_reason is not None and log.identity.topic != METADATA_TOPIC]

    def _take_offline_if_others_have_it(self, log: Log) -> None:
        """Handles damage found by a reader. The last copy stays online: the rest of the log is better than nothing."""
        placed = self._placed(log.identity)
        known = () if placed is None else (*placed.isr, *placed.eligible_leader_replicas)
        if log.suspicion is not None and any(each != self._controller.node_id for each in known):
            log.damage(log.suspicion)
        else:
            self._warn(log, f"is damaged, and stays in use because no other replica has everything: {log.suspicion}")

    # --- failed logs ----------------------------------------------------------------------------------------------

    def _changes(self, offline: Sequence[Log]) -> Iterator[NewIsr]:
        """The ISR changes to request now; reports every failed log to the replication core."""
        for log in offline:
            self._replicas.failed(log)
            if not log.is_damaged:
                yield from self._without_me(log)

    def _without_me(self, log: Log) -> Iterator[NewIsr]:
        image, node_id = self._controller.image, self._controller.node_id
        topic_id = bytes.fromhex(log.identity.topic_id)
        placed = self._placed(log.identity)
        if placed is None or placed.leader != node_id:
            return
        brokers = [image.brokers[each] for each in placed.isr if each != node_id and each in image.brokers]
        others = tuple((each.broker_id, each.epoch) for each in brokers if each.is_active)
        if others:
            yield NewIsr(topic_id, log.identity.partition, placed.leader_epoch, placed.partition_epoch, others)

    def _placed(self, identity: Identity) -> Partition | None:
        topic = self._controller.image.topic_by_id(bytes.fromhex(identity.topic_id))
        return None if topic is None else topic.partitions.get(identity.partition)

    # --- damaged logs: reports to the controller ------------------------------------------------------------------

    def _on_image(self, changes: Changes, _image: Image) -> None:
        for change in changes.topics_changed:
            for index, was, placed in change.partitions:
                if was is not None or placed.damaged:
                    self._note(change.new, index, placed)
        for topic in changes.topics_deleted:
            for index in topic.partitions:
                self._reported.pop((topic.topic_id, index), None)
            if self._directory.kept_aside:
                self._deleted.add(topic.topic_id)

    def _note(self, topic: Topic, index: int, placed: Partition) -> None:
        if self._controller.node_id in placed.damaged:
            self._reported[topic.topic_id, index] = None
            self._wake.set()
        else:
            self._reported.pop((topic.topic_id, index), None)

    async def report(self) -> None:
        """Reports damaged replicas, and those that are good again, to the controller."""
        replicas = (*self._damaged(), *self._good_again())[:CHANGES_PER_REQUEST_MAX]
        if replicas:
            await self._messages.assign(AssignReplicas(self._controller.node_id, self._membership.epoch, replicas))

    def _damaged(self) -> Iterator[Assigned]:
        node_id = self._controller.node_id
        for log in self._offline():
            placed = self._placed(log.identity)
            if log.is_damaged and placed is not None and node_id in placed.replicas and node_id not in placed.damaged:
                self._replicas.failed(log)  # first: the log must fetch nothing in the new leader epoch
                yield Assigned(LOST_DIRECTORY, bytes.fromhex(log.identity.topic_id), log.identity.partition)

    def _good_again(self) -> Iterator[Assigned]:
        """Replicas whose logs were created anew, or repaired while the broker was down."""
        for topic_id, index in list(self._reported):
            topic = self._controller.image.topic_by_id(topic_id)
            log = None if topic is None else self._directory.logs.get(f"{topic.name}-{index}")
            if topic is None or log is None or log.offline_reason is not None:
                continue
            if log.written_end <= log.start_offset and self._counts(topic.partitions[index]):
                self._warn(log, "is empty, but the damaged log before it was the last copy: put that back, and restart")
            else:
                yield Assigned(self._directory_id, topic_id, index)

    def _counts(self, placed: Partition) -> bool:
        """Whether this replica is in the ISR or the ELR, or leads: others may rely on its records."""
        return self._controller.node_id in (*placed.isr, *placed.eligible_leader_replicas, placed.leader)

    # --- damaged logs: replacement --------------------------------------------------------------------------------

    def _may_go(self, log: Log) -> bool:
        """Whether, by the metadata log, another replica leads and this one is in neither the ISR nor the ELR."""
        placed = self._placed(log.identity)
        return (
            log.is_damaged
            and placed is not None
            and self._controller.node_id in placed.damaged
            and placed.leader != NO_LEADER
            and not self._counts(placed)
        )

    async def _replace(self, offline: Sequence[Log]) -> None:
        for log in offline:
            if log.is_damaged and self._may_go(log):
                try:
                    await self._reconciler.replace(log, self._may_go)
                except (ProtocolError, OSError) as error:
                    self._warn(log, f"is damaged, and could not be set aside, which is tried again: {error}")
            elif log.is_damaged:
                self._warn_of_last_copy(log)

    def _warn_of_last_copy(self, log: Log) -> None:
        placed = self._placed(log.identity)
        if placed is not None and self._controller.node_id in placed.damaged:
            self._warn(
                log,
                f"is offline and kept: {log.offline_reason}. No replica leads that has every acknowledged record. "
                "Start the brokers that have one; or restore the file from a backup and restart this broker; or go on "
                f"with what other replicas have: penstock topic elect {log.identity.topic} --unclean",
            )

    def _warn(self, log: Log, text: str) -> None:
        if log.identity.number not in self._warned:
            self._warned.add(log.identity.number)
            logger.error("%s %s.", log.path, text)

    async def _remove_replaced(self) -> None:
        """Removes logs that were set aside, once this broker is in the ISR again or has no replica any more."""
        node_id = self._controller.node_id
        for number, identity in list(self._directory.kept_aside.items()):
            placed = self._placed(identity)
            if placed is None:
                is_needless = bytes.fromhex(identity.topic_id) in self._deleted
            else:
                is_needless = node_id not in placed.replicas or (
                    node_id in placed.isr and node_id not in placed.damaged
                )
            if is_needless:
                with suppress(OSError):  # retried later
                    await self._directory.remove_aside(number)
