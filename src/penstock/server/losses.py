"""What may be lost is said: a broker tells of partitions whose acknowledged records nobody vouches for any more.

With durability 'replicated' a broker whose machine crashed or lost power may have lost what it had not synced; one
whose process was killed has lost nothing, as the boot id shows (`log/boot.py`). As long as others are in sync it copies
that from them, and nothing is lost. Where it is the one to lead nevertheless (an unclean election, the only replica),
or where nobody leads because all who were in sync came back like that, it says so, once per life, with the offset at
which its own log ends: whatever was acknowledged from there on may be gone.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import NO_LEADER, Image, Partition
from penstock.metadata.partition_change import RECOVERING
from penstock.metadata.view import ELR_FEATURE
from penstock.replication.ports import Key
from penstock.server.controller_runner import ControllerRunner

logger = logging.getLogger("penstock.losses")

NAMES_MAX: Final = 5


class Losses:
    """See the module. It follows images from `begin` on."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self._logs: dict[Key, Log] = {}
        """Those that this broker began with: only of them can it have lost anything."""
        self._doubtful: set[Key] = set()
        """Those that may end too early, until this broker was in sync under somebody else."""
        self._unled: set[Key] = set()
        """Those that were told of because nobody leads them."""
        self.has_reported = False
        """Whether no partition is left of which a loss may have to be reported."""
        self.on_reported: Callable[[], object] = _nobody_waits
        """Called when that becomes true."""
        controller.subscribe(self._on_image)

    def begin(self, logs: Iterable[Log], doubtful: Sequence[Log], unreported: Sequence[Log] = ()) -> None:
        """A life of the broker begins with these logs, for some of which it does not vouch.

        `unreported`: an earlier life registered a loss, and may have ended before it reported it.
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
        self.on_reported()

    def led(self, key: Key, log: Log, partition: Partition, start_offset: int) -> None:
        """This broker leads from here on; `partition` is what the metadata log has of it."""
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
        """Whether the controller makes a leader of whoever was the last in sync, even if it was not stopped cleanly."""
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
            return  # somebody has all, and is only away
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


def _nobody_waits() -> None:
    return None


def _key(log: Log) -> Key:
    return bytes.fromhex(log.identity.topic_id), log.identity.partition


def _name(log: Log) -> str:
    return f"{log.identity.topic}-{log.identity.partition}"
