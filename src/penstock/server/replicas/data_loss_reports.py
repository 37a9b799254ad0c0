"""Reports of possible data loss: partitions of which no replica is sure to have every acknowledged record.

With durability 'replicated' a broker whose machine crashed or lost power may have lost records that it had not synced.
A broker whose process was killed has lost nothing; the boot id tells the two apart (`log/boot.py`). While other
replicas are in sync, the broker copies the records from them, and nothing is lost. A loss is reported if the broker
leads nevertheless (an unclean election, the only replica), or if no replica leads because all replicas of the ISR came
back in this way. It is reported once per run, with the end offset of the broker's own log: records acknowledged from
there on may be lost.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import NO_LEADER, Image, Partition
from penstock.metadata.partition_change import RECOVERING
from penstock.metadata.view import ELR_FEATURE
from penstock.model.signal import Signal
from penstock.replication.ports import Key
from penstock.server.controller.controller_runner import ControllerRunner

logger = logging.getLogger("penstock.losses")

NAMES_MAX: Final = 5


class DataLossReports:
    """See the module. Follows images from `begin` on."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self._logs: dict[Key, Log] = {}
        """The logs that this broker started with; only these can have lost records."""
        self._doubtful: set[Key] = set()
        """Logs that may end too early, until this broker is in the ISR under another leader."""
        self._unled: set[Key] = set()
        """Partitions already reported for having no leader."""
        self.has_reported = False
        """Whether every possible loss has been reported or ruled out."""
        self.reported: Signal[[]] = Signal()
        """Emitted when `has_reported` becomes true."""
        controller.subscribe(self._on_image)

    def begin(self, logs: Iterable[Log], doubtful: Sequence[Log], unreported: Sequence[Log] = ()) -> None:
        """Begins a run of the broker with these logs; `doubtful` ones may lack records.

        `unreported`: logs of which an earlier run registered a loss, and may have ended before it reported it.
        """
        self._logs = {_key(log): log for log in logs}
        self._doubtful = {_key(log) for log in (*doubtful, *unreported)}
        if doubtful:
            more = f" and {len(doubtful) - NAMES_MAX} more" if len(doubtful) > NAMES_MAX else ""
            logger.warning(
                "The machine of this broker crashed or lost power: the broker does not vouch for %d partitions with "
                "durability=replicated until it has copied them from who is in sync: %s%s.",
                len(doubtful),
                ", ".join(f"{_name(log)} from offset {log.written_end} on" for log in doubtful[:NAMES_MAX]),
                more,
            )
        image = self._controller.image
        for key, log in self._logs.items():
            topic = image.topic_by_id(key[0])
            partition = None if topic is None else topic.partitions.get(key[1])
            if partition is not None:
                self._look(key, log, partition)
        if not self._doubtful:
            self._finish()

    def _finish(self) -> None:
        self.has_reported = True
        self.reported()

    def led(self, key: Key, log: Log, partition: Partition, start_offset: int) -> None:
        """Reports a possible loss when this broker becomes leader; `partition` is its state in the metadata log."""
        if partition.leader_recovery_state == RECOVERING:
            why = "this broker was elected to lead it though it need not have all of them (an unclean election)"
        elif key in self._doubtful and self._is_unguarded(partition):
            why = "this broker, whose machine crashed or lost power with durability=replicated, leads it again"
        else:
            return
        logger.error(
            "Records of %s may be lost: %s. What was acknowledged before, from offset %d on, is gone if it is not in "
            "its log now: send it again where you can.",
            _name(log),
            why,
            start_offset,
        )
        self._resolve(key)

    def _resolve(self, key: Key) -> None:
        if key in self._doubtful:
            self._doubtful.remove(key)
            if not self._doubtful:
                self._finish()

    def _is_unguarded(self, partition: Partition) -> bool:
        """Whether the controller elects the last in-sync replica even after an unclean shutdown."""
        return len(partition.replicas) == 1 or self._controller.image.features.get(ELR_FEATURE, 0) < 1

    def _on_image(self, changes: Changes, _image: Image) -> None:
        for topic in changes.topics_deleted:
            for number in topic.partitions:
                self._forget((topic.topic_id, number))
        if not self._logs:
            return
        for change in changes.topics_changed:
            for number, _, partition in change.partitions:
                key = change.new.topic_id, number
                log = self._logs.get(key)
                if log is not None:
                    self._look(key, log, partition)

    def _forget(self, key: Key) -> None:
        self._logs.pop(key, None)
        self._resolve(key)
        self._unled.discard(key)

    def _look(self, key: Key, log: Log, partition: Partition) -> None:
        me = self._controller.node_id
        if partition.leader != NO_LEADER:
            self._unled.discard(key)
            if me in partition.isr and partition.leader != me:
                self._resolve(key)
            return
        if partition.isr or partition.eligible_leader_replicas or not partition.last_known_elr:
            return  # a replica has all records, and is only offline
        if me not in partition.replicas or key in self._unled:
            return
        self._unled.add(key)
        known = partition.last_known_elr
        logger.error(
            "Records of %s may be lost, and nobody leads it: %s, who had all that was acknowledged, lost "
            "power (durability=replicated) or records. Here it ends at offset %d. To go on with what is left: "
            "penstock topic elect %s --unclean.",
            _name(log),
            f"broker{'s' * (len(known) > 1)} {', '.join(map(str, known))}",
            log.written_end,
            log.identity.topic,
        )


def _key(log: Log) -> Key:
    return bytes.fromhex(log.identity.topic_id), log.identity.partition


def _name(log: Log) -> str:
    return f"{log.identity.topic}-{log.identity.partition}"
