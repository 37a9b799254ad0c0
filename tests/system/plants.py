"""Bugs that can be planted in a victim, to see that the checks of these tests turn red."""

import os
from collections.abc import Callable
from typing import Any, NoReturn

from penstock.coordinator import heartbeats, offsets, reconciliation
from penstock.coordinator.consumer import NOTHING, ConsumerGroup, Member, MemberState, Partitions
from penstock.coordinator.work import Work
from penstock.host.entropy import HostEntropy
from penstock.log import directory, recovery
from penstock.log.boot import Boot
from penstock.log.log import Log, SyncTicket
from penstock.log.producers import ProducerStates
from penstock.log.segment import Segment
from penstock.log.space import Reserve
from penstock.metadata.image import Image
from penstock.metadata.liveness import Liveness
from penstock.metadata.names import METADATA_TOPIC
from penstock.raft.replicas import VoterSet
from penstock.replication.leader import Leader
from penstock.server.broker import Broker
from penstock.server.controller.producer_ids import ProducerIds
from penstock.server.handlers.records import list_offsets
from penstock.server.membership.disk_space import DiskSpaceWatch
from penstock.server.partitions.partition import Partition
from penstock.server.quorum import quorum_runner
from penstock.server.quorum.metadata_log import open_metadata_log
from penstock.server.replicas.data_loss_reports import DataLossReports

FORGOTTEN_RECORDS = 6
LATE_MS = 15_000


def _put(owner: Any, name: str, bug: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more: a bug there changes nothing"
    setattr(owner, name, bug)


def ack_before_sync() -> None:
    """Appends count as durable as soon as they are written."""
    _put(Log, "durable_end", property(lambda log: log.written_end))


def forget_names() -> None:
    """The names of new segments are not synced."""
    begin_sync = Log.begin_sync

    def begin(self: Log) -> SyncTicket | None:
        self._has_new_names = False
        return begin_sync(self)

    _put(Log, "begin_sync", begin)


def forget_producers() -> None:
    """After a crash nobody knows who has sent what."""
    opening = recovery.open_log

    async def open_and_forget(*arguments: Any, **options: Any) -> Log:
        log = await opening(*arguments, **options)
        log.producers = ProducerStates()
        return log

    _put(directory, "open_log", open_and_forget)


def give_ids_again() -> None:
    """After a start producer ids begin from 0 again."""

    async def fill(self: Any) -> None:
        self._next, self._end = 0, 1000

    _put(ProducerIds, "_fill", fill)


def fail_on_full_roll() -> None:
    """A full disk at a new segment takes the log offline, as any other failure does."""

    def fail(self: Log, error: OSError, _path: str) -> NoReturn:
        self.take_offline(f"a new segment could not be made: {error}")
        self._require_online()
        raise AssertionError

    _put(Log, "_roll_failed", fail)


def fail_on_full_write() -> None:
    """A full disk at an append takes the log offline, as any other failure does."""

    def fail(self: Log, error: OSError, _segment: object, _file: object) -> NoReturn:
        self.take_offline(f"a write failed: {error}")
        self._require_online()
        raise AssertionError

    _put(Log, "_write_failed", fail)


def keep_no_reserve() -> None:
    """Nothing is kept back to empty a full disk with."""
    _put(Reserve, "fill", lambda _self: None)


def one_voter_decides() -> None:
    """Whoever asks itself has a majority, and all ask at the same moment."""
    _put(VoterSet, "majority", property(lambda _self: 1, lambda _self, _majority: None))
    _put(HostEntropy, "below", lambda _self, _limit: 0)


def forget_last_changes() -> None:
    """A start does not find the end of the metadata log, as if it had not been written yet."""

    async def open_and_cut(within: directory.DataDirectory) -> Log:
        log = await open_metadata_log(within)
        end_offset = max(log.start_offset, log.written_end - FORGOTTEN_RECORDS)
        await within.truncate(log, end_offset, now_ms=0)
        return log

    _put(quorum_runner, "open_metadata_log", open_and_cut)


def commit_alone() -> None:
    """A leader calls committed what it has itself, whoever else is in sync."""

    def advance(self: Leader, _now: int) -> bool:
        is_news = self._log.durable_end > self._log.high_watermark
        if is_news:
            self._log.advance_high_watermark(self._log.durable_end)
        return is_news

    _put(Leader, "advance", advance)


def delete_alone() -> None:
    """DeleteRecords is acknowledged once the leader has deleted the records, and followers are not woken."""
    _put(Leader, "low_watermark", lambda self: self._log.start_offset)
    _put(Partition, "on_trimmed", lambda self, wakes: self.followers.mark())


def lead_on_full_disk() -> None:
    """Nobody is told that a disk is full."""
    _put(DiskSpaceWatch, "look", lambda _self: None)


def fence_late() -> None:
    """A broker that is gone leads on for a while: nobody looks for it, and its session is too long."""
    expired = Liveness.expired

    def expire_late(self: Liveness, image: Image, timeout_ms: int) -> list[int]:
        return expired(self, image, timeout_ms + LATE_MS)

    _put(Liveness, "lose", lambda _self, _broker_id, _epoch: None)
    _put(Liveness, "expired", expire_late)


def vouch_for_all() -> None:
    """Whoever comes back says that it has lost nothing, however it went."""

    def previous_epoch(self: Broker) -> int:
        before = self._member.controller.image.brokers.get(self._settings.node_id)
        return -1 if before is None else before.epoch

    _put(Broker, "_previous_epoch", previous_epoch)


def distrust_kills() -> None:
    """Whoever was killed is taken for one whose machine lost power."""
    begin = Boot.begin

    async def begin_elsewhere(self: Boot, *, is_clean: bool) -> None:
        self.boot_id = f"{self.boot_id}-{os.getpid()}"
        await begin(self, is_clean=is_clean)

    _put(Boot, "begin", begin_elsewhere)


def cut_what_is_not_synced() -> None:
    """After a kill only what was synced is left of a log, and nobody says so."""
    scan = recovery._TailScan._scan

    def scan_less(self: recovery._TailScan, segment: Segment) -> str | None:
        path = self.log.path_of(segment, "log")
        if self.entry is not None and self.log.identity.topic != METADATA_TOPIC and self.disk.exists(path):
            is_behind = segment.base_offset > self.entry.segment_base
            self.pool.file(path).truncate(0 if is_behind else self.entry.position)
        return scan(self, segment)

    _put(recovery._TailScan, "_scan", scan_less)
    _put(Boot, "found_gap", lambda _self: None)


def keep_losses_quiet() -> None:
    """What may be lost is said by nobody."""
    _put(DataLossReports, "led", lambda *_arguments: None)
    _put(DataLossReports, "_look", lambda *_arguments: None)


def tell_an_old_end() -> None:
    """Every third who asks where a partition ends is told where it ended long ago."""
    look_up = list_offsets._look_up
    asked = 0

    async def look_up_late(partition: Partition, timestamp_ms: int, *arguments: Any) -> tuple[int, int, int]:
        nonlocal asked
        found = await look_up(partition, timestamp_ms, *arguments)
        asked += timestamp_ms == list_offsets.LATEST
        return (found[0], 0, found[2]) if timestamp_ms == list_offsets.LATEST and asked % 3 == 0 else found

    _put(list_offsets, "_look_up", look_up_late)


def forget_commits() -> None:
    """Every third commit is acknowledged and not written down."""
    commit = offsets.commit
    seen = 0

    def commit_most(group: Any, ask: Any, ticket: int, work: Work) -> None:
        nonlocal seen
        commit(group, ask, ticket, work)
        seen += 1
        if seen % 3 == 0:
            work.records.clear()

    _put(offsets, "commit", commit_most)


def give_at_once() -> None:
    """In a consumer group, partitions are given to their next member before the last one has given them up."""
    reconciled = reconciliation.reconciled

    def give(group: ConsumerGroup, member: Member, owned: Partitions | None) -> Member:
        after = reconciled(group, member, owned)
        if after.state is not MemberState.UNRELEASED:
            return after
        return after._replace(state=MemberState.STABLE, assigned=group.targets.get(member.member_id, NOTHING))

    _put(heartbeats, "reconciled", give)


PLANTS: dict[str, Callable[[], None]] = {
    "ack-before-sync": ack_before_sync,
    "commit-alone": commit_alone,
    "cut-what-is-not-synced": cut_what_is_not_synced,
    "delete-alone": delete_alone,
    "distrust-kills": distrust_kills,
    "fail-on-full-roll": fail_on_full_roll,
    "fail-on-full-write": fail_on_full_write,
    "fence-late": fence_late,
    "forget-commits": forget_commits,
    "forget-last-changes": forget_last_changes,
    "forget-names": forget_names,
    "forget-producers": forget_producers,
    "give-at-once": give_at_once,
    "give-ids-again": give_ids_again,
    "keep-losses-quiet": keep_losses_quiet,
    "keep-no-reserve": keep_no_reserve,
    "lead-on-full-disk": lead_on_full_disk,
    "one-voter-decides": one_voter_decides,
    "tell-an-old-end": tell_an_old_end,
    "vouch-for-all": vouch_for_all,
}
