"""The invariants of partition replication, checked after every event of a world of replicas.

Each has the name that the specifications give it. One list per partition holds all entries ever committed by any
leader, and no replica may contradict it. How far each log agrees with it is cached, so that a check covers only what
the event touched. Every 100 events everything is checked without the cache. `Broken.name` names the invariant.
"""

from typing import TYPE_CHECKING

from penstock.metadata.cluster_commands import NewIsr
from penstock.metadata.image import NO_LEADER, Image, Partition
from penstock.replication.leader import Leader
from penstock.replication.ports import Key
from tests.simulation.kit.invariants import broken
from tests.simulation.replication_core.disk import Entry, ModelLog

if TYPE_CHECKING:
    from tests.simulation.replication_core.world import Broker, World


class Checks:
    """The state so far, against which later events are checked."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.committed: dict[Key, list[Entry]] = {}
        """Every entry that a leader ever committed, by offset."""
        self.values: set[int] = set()
        self.acked: dict[Key, dict[int, int]] = {}
        self.acknowledgements = 0
        self.epochs_led: set[tuple[Key, int]] = set()
        self._high_watermarks: dict[tuple[int, Key], int] = {}
        self._told_ends: dict[Key, dict[int, int]] = {}
        """The highest end offset reported to clients in each leader epoch."""
        self._images: dict[int, int] = {}
        self._proposals: dict[tuple[int, Key], NewIsr | None] = {}
        self.deleted: dict[Key, int] = {}
        """The highest low watermark in an acknowledgement of a DeleteRecords."""
        self.deletions = 0

    # --- after every step -----------------------------------------------------------------------------------------

    def stepped(self, broker: "Broker") -> None:
        replicas = broker.replicas
        assert replicas is not None
        if broker.metadata_at < self._images.get(broker.broker_id, 0):
            broken("MetadataLogMatching", f"{broker} goes back in the metadata log")
        self._images[broker.broker_id] = broker.metadata_at
        here = [
            (key, replica, log)
            for key, replica in replicas.partitions.items()
            if replica.log is not None and (log := broker.disk.logs.get(key)) is not None
        ]
        for key, replica, log in here:
            if log.has_failed and (replica.leader is not None or replica.following is not None):
                broken("FailedLogs", f"{broker} leads or follows {key[1]}, whose log has failed")
            if log.high_watermark != self._high_watermarks.get((broker.broker_id, key)):
                self._moved(broker, key, log, replica.leader)
        for key, partition in self._world.partitions().items():
            self._in_sync_have_all(key, partition)
            self._deleted_stays_deleted(key, partition)
        for key, replica, _ in here:
            leader = replica.leader
            if leader is not None:
                self._counts_on_all(broker, key, leader)
                if leader.proposal is not self._proposals.get((broker.broker_id, key)):
                    self._proposals[broker.broker_id, key] = leader.proposal
                    self._proposed(broker, key, leader)

    def moved(self, broker: "Broker") -> None:
        """Checks fetchers after replicas may have become leaders or followers."""
        assert broker.replicas is not None
        for key, replica in broker.replicas.partitions.items():
            if replica.log is not None:
                self._has_one_fetcher(broker, key)

    def _moved(self, broker: "Broker", key: Key, log: ModelLog, leader: Leader | None) -> None:
        """Checks a changed high watermark of a replica."""
        committed = self.committed.setdefault(key, [])
        high_watermark = log.high_watermark
        before = self._high_watermarks.get((broker.broker_id, key), 0)
        self._high_watermarks[broker.broker_id, key] = high_watermark
        if leader is not None:
            if high_watermark < before:
                broken("LeaderCompleteness", f"{broker} leads {key[1]} and goes from {before} to {high_watermark}")
            if self._agreed_end(log, committed) < min(high_watermark, len(committed)):
                broken("LogMatching", f"{broker} leads {key[1]} and calls committed what others have otherwise")
            for offset in range(len(committed), high_watermark):
                committed.append(log.entry(offset))
            inside = log.start_offset < high_watermark < log.written_end and log.entry(high_watermark).place
            if inside:
                broken("WholeBatches", f"{broker} calls {key[1]} committed up to {high_watermark}, inside a batch")
        elif high_watermark > len(committed):
            broken("LogMatching", f"{broker} follows and calls {high_watermark} committed, no leader did so yet")
        if self._agreed_end(log, committed) < high_watermark:
            broken("LogMatching", f"{broker} has other records of {key[1]} below {high_watermark} than were committed")

    def _agreed_end(self, log: ModelLog, committed: list[Entry]) -> int:
        at, start, entries = log.agreed_end, log.start_offset, log.entries
        end = min(log.written_end, len(committed))
        at = max(at, min(start, end))
        while at < end and entries[at - start] == committed[at]:
            at += 1
        log.agreed_end = at
        return at

    def _has_one_fetcher(self, broker: "Broker", key: Key) -> None:
        replicas = broker.replicas
        assert replicas is not None
        replica = replicas.partitions[key]
        sources = [source for source, fetcher in replicas.fetchers.items() if key in fetcher]
        partition = replica.partition
        if replica.is_cutting:
            return  # it applies the metadata once the truncation is done
        wanted = [] if partition.leader in (NO_LEADER, broker.broker_id) else [partition.leader]
        if sources != wanted:
            broken("ValidFetcherState", f"{broker} fetches {key[1]} from {sources}, its leader is {partition.leader}")

    def _counts_on_all(self, broker: "Broker", key: Key, leader: Leader) -> None:
        """The leader's maximal ISR contains the committed ISR; the members of its ISR reach its high watermark."""
        self.epochs_led.add((key, leader.epoch))
        partition = self._world.partitions().get(key)
        if partition is None or partition.leader != broker.broker_id or partition.leader_epoch != leader.epoch:
            return
        if not frozenset(partition.isr) <= frozenset(leader.maximal_isr):
            what = f"{broker} counts on {leader.maximal_isr}, in sync are {partition.isr}"
            broken("ReplicationQuorumSuperset", what)
        replicas = broker.replicas
        assert replicas is not None
        high_watermark = broker.disk.logs[key].high_watermark
        for each in leader.isr:
            member = self._world.brokers[each]
            log = member.log(key)
            known = replicas.image.brokers.get(each)
            if known is None or log is None or member.epoch != known.epoch:
                continue  # not the life that the leader refers to
            if self._agreed_end(log, self.committed.setdefault(key, [])) < high_watermark:
                broken("WeakIsr", f"{member} is in sync for {broker}, but not up to {high_watermark}")

    def _proposed(self, broker: "Broker", key: Key, leader: Leader) -> None:
        """A proposed ISR member is eligible in the leader's image and holds earlier epochs and committed records."""
        replicas, proposal = broker.replicas, leader.proposal
        assert replicas is not None
        if proposal is None:
            return
        start = max(leader.start_offset, broker.disk.logs[key].high_watermark)
        for each, epoch in proposal.isr:
            if each in leader.isr:
                continue
            known = replicas.image.brokers.get(each)
            if known is None or known.is_fenced or known.is_shutting_down or known.epoch != epoch:
                broken("EligibleProposal", f"{broker} proposes {each} of epoch {epoch}, but knows it as {known}")
            if leader.progress[each].end_offset < start:
                broken("AppliedHighWatermark", f"{broker} proposes {each}, which is short of {start}")

    def _in_sync_have_all(self, key: Key, partition: Partition) -> None:
        """Every replica in the ISR or ELR holds everything that was ever committed."""
        committed = self.committed.setdefault(key, [])
        end = len(committed)
        brokers = self._world.quorum.image.brokers
        is_fsync = self._world.options.is_fsync
        for each in (*partition.isr, *partition.eligible_leader_replicas):
            member = self._world.brokers[each]
            log = member.log(key)
            is_this_life = member.epoch >= 0 and each in brokers and member.epoch == brokers[each].epoch
            if log is None:
                if end and is_this_life:
                    broken("StrongIsr", f"{member} is in sync for {key[1]} and has no log of it")
                continue
            if not is_this_life and not is_fsync:
                continue  # the next registration reports what it has lost
            if log.agreed_end >= end and (not is_fsync or log.synced_end >= end):
                continue
            if self._agreed_end(log, committed) < end or (is_fsync and log.synced_end < end):
                name = "LeaderCandidateCompleteness"
                if each == partition.leader:
                    name = "LeaderCompleteness"
                elif each in partition.isr:
                    name = "StrongIsr"
                has = min(log.agreed_end, log.synced_end) if is_fsync else log.agreed_end
                broken(name, f"{member} has {key[1]} up to {has}, but {end} are committed")

    def _deleted_stays_deleted(self, key: Key, partition: Partition) -> None:
        """No log of a replica in the ISR or ELR starts before an acknowledged low watermark."""
        deleted = self.deleted.get(key, 0)
        if not deleted:
            return
        brokers = self._world.quorum.image.brokers
        for each in (*partition.isr, *partition.eligible_leader_replicas):
            member = self._world.brokers[each]
            log = member.log(key)
            is_this_life = member.epoch >= 0 and each in brokers and member.epoch == brokers[each].epoch
            if log is None or (not is_this_life and not self._world.options.is_fsync):
                continue
            if log.start_offset < deleted:
                what = f"{member} may lead {key[1]}, and its log starts at {log.start_offset}"
                broken("DeletedStaysDeleted", f"{what}, but {deleted} was acknowledged")

    # --- the controller -------------------------------------------------------------------------------------------

    def decided(self, before: Image, after: Image) -> None:
        """Checks the partitions after a batch of the metadata log is committed."""
        in_sync_min = self._world.in_sync_min()
        for key, partition in self._world.partitions().items():
            isr, elr = frozenset(partition.isr), frozenset(partition.eligible_leader_replicas)
            if partition.leader != NO_LEADER and partition.leader not in isr:
                broken("LeaderInIsr", f"{key[1]}: {partition}")
            fenced = [each for each in partition.isr if after.brokers[each].is_fenced]
            if fenced:
                broken("ValidControllerState", f"{fenced} are fenced, and in sync for {key[1]}")
            is_valid = (isr | elr) <= frozenset(partition.replicas) and not isr & elr
            if not is_valid or (elr and len(isr) >= min(in_sync_min, len(partition.replicas))):
                broken("ValidControllerIsrAndElr", f"{key[1]}: {partition}")
            self._in_sync_have_all(key, partition)
            self._deleted_stays_deleted(key, partition)

    # --- restarts, losses and truncation --------------------------------------------------------------------------

    def begins(self, broker: "Broker") -> None:
        """Begins a new life: the image and the high watermarks that were only in memory no longer count."""
        self._images[broker.broker_id] = 0
        for key in list(broker.disk.logs):
            self._high_watermarks.pop((broker.broker_id, key), None)

    def died(self, broker: "Broker") -> None:
        """Checks after the end of a broker, perhaps with loss, that some replica holds all committed records."""
        if self._world.options.is_beyond:
            return
        for key, partition in self._world.partitions().items():
            committed = self.committed.get(key, [])
            if not committed:
                continue  # perhaps no replica has created its log yet
            logs = [self._world.brokers[each].log(key) for each in partition.replicas]
            if not any(log is not None and self._agreed_end(log, committed) >= len(committed) for log in logs):
                broken("NoCommittedRecordLostGlobally", f"nobody has {key[1]} up to {len(committed)} any more")

    def cutting(self, broker: "Broker", key: Key, end_offset: int) -> None:
        """Lowers the noted high watermark of a log that is about to be truncated."""
        self._high_watermarks[broker.broker_id, key] = min(
            end_offset, self._high_watermarks.get((broker.broker_id, key), 0)
        )

    # --- responses to clients -------------------------------------------------------------------------------------

    def acknowledged(self, broker: "Broker", key: Key, offset: int, value: int) -> None:
        committed = self.committed[key]
        if offset >= len(committed) or committed[offset].value != value:
            broken("NoCommittedRecordLostGlobally", f"{broker} acknowledges {value}, which is not committed")
        self.acked.setdefault(key, {})[offset] = value
        self.acknowledgements += 1

    def deleted_before(self, broker: "Broker", key: Key, low_watermark: int) -> None:
        """A DeleteRecords is acknowledged: no live replica in the leader's image has an earlier log start."""
        self.deleted[key] = max(low_watermark, self.deleted.get(key, 0))
        self.deletions += 1
        replicas = broker.replicas
        assert replicas is not None
        placed = replicas.partitions[key].partition
        for each in placed.replicas:
            member, known = self._world.brokers[each], replicas.image.brokers.get(each)
            log = member.log(key)
            if log is None or known is None or known.is_fenced or member.epoch != known.epoch:
                continue
            if log.start_offset < low_watermark and each not in placed.adding_replicas:
                what = f"{broker} acknowledges that {key[1]} starts at {low_watermark}"
                broken("LowWatermark", f"{what}, but on {member} it starts at {log.start_offset}")
        partition = self._world.partitions().get(key)
        if partition is not None:
            self._deleted_stays_deleted(key, partition)

    def told_end(self, broker: "Broker", key: Key, epoch: int, end: int | None) -> None:
        """A leader reports the end offset of the partition: no leader of a later epoch may report less."""
        told = self._told_ends.setdefault(key, {})
        if end is None:
            return
        before = max((each for known, each in told.items() if known <= epoch), default=0)
        if end < before:
            broken("OffsetsDoNotGoBack", f"{broker} tells the end {end} in epoch {epoch}, but {before} was told before")
        told[epoch] = max(end, told.get(epoch, 0))

    # --- everything at once ---------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Checks everything again, without the cache."""
        for key, committed in self.committed.items():
            for offset, value in self.acked.get(key, {}).items():
                if committed[offset].value != value:
                    broken("ConsistentRead", f"{value} was acknowledged at {offset}, now {committed[offset]} is there")
            for broker in self._world.brokers.values():
                log = broker.log(key)
                if log is None or broker.replicas is None or key not in broker.replicas.partitions:
                    continue
                start, end = log.start_offset, log.high_watermark
                if log.entries[: end - start] != committed[start:end]:
                    broken("ConsistentRead", f"{broker} shows other records of {key[1]} below {end} than before")

    def end(self) -> None:
        """Checks that all replicas are in sync and hold everything, once all faults are healed."""
        self.sweep()
        if self._world.options.is_beyond:
            return
        for key, partition in self._world.partitions().items():
            committed = self.committed.get(key, [])
            if partition.leader == NO_LEADER or len(partition.isr) != len(partition.replicas):
                broken("Convergence", f"{key[1]} ends with {partition}")
            for each in partition.replicas:
                broker = self._world.brokers[each]
                log = broker.log(key)
                if log is None or log.written_end != len(committed):
                    broken("Convergence", f"{broker} has {log and log.written_end} of {len(committed)} of {key[1]}")
                if log.entries != committed[log.start_offset :]:
                    broken("LogMatching", f"{broker} ends with other records of {key[1]} than were committed")
                if log.start_offset < self.deleted.get(key, 0):
                    broken("DeletedStaysDeleted", f"{broker} ends with {key[1]} from {log.start_offset} on")
            leader = self._world.brokers[partition.leader]
            if leader.deletions.get(key) or key not in self.deleted:
                broken("Convergence", f"{leader} leads {key[1]}, and deletions are not acknowledged")
            if leader.disk.logs[key].high_watermark != len(committed) or leader.waiting.get(key):
                broken("Convergence", f"{leader} leads {key[1]}, and not all is committed or told")
