"""Replicas with one rule removed at a time, to verify that the worlds notice, and for which reason.

The first four are protocols that Kafka once had, or nearly: the specification keeps them as modules. Then follow one or
more for each of R01 to R10, R28 and R29, then mutants for rules of our own. `python -m
tests.simulation.replication_core.mutants` measures them; tests/scenarios/test_replication_stories.py catches each with
its own scenario.
"""

import sys
from collections import deque
from typing import Any

import pytest

from penstock.metadata.cluster_commands import AlteredPartitions
from penstock.model.errors import ErrorCode
from penstock.replication.effects import CutLog, Effect
from penstock.replication.events import ImageLearned
from penstock.replication.fetcher import Fetcher
from penstock.replication.follower import Following, Pace
from penstock.replication.isr_changes import Changes
from penstock.replication.leader import FITS, Asked, Leader, Progress, Verdict
from penstock.replication.ports import Key, ReplicaLog
from penstock.replication.replicas import Replica, Replicas
from penstock.replication.source_session import FetchRequestData, SourceSession
from penstock.wire.messages.fetch import FetchPartition, PartitionData
from tests.simulation.kit.mutants import Measured, Mutants
from tests.simulation.planted.planting import Edit, plant
from tests.simulation.replication_core.faults import run_seed
from tests.simulation.replication_core.world import Broker

MUTANTS = Mutants("replication", run_seed, seeds_max=1_000)
caught_by = MUTANTS.caught_by

INCOMPLETE = (
    "StrongIsr",
    "WeakIsr",
    "LeaderCompleteness",
    "LeaderCandidateCompleteness",
    "LogMatching",
    "ConsistentRead",
    "NoCommittedRecordLostGlobally",
)
"""A replica that must hold all committed records lacks some, or has others."""
DIVERGED = (*INCOMPLETE, "WholeBatches")
"""Also: the end of a follower that has other batches is inside a batch of its leader, which counts it."""


# --- former protocols -------------------------------------------------------------------------------------------------


def _does_not_fence(patch: pytest.MonkeyPatch) -> None:
    """The leader serves a fetch whatever its leader epoch."""
    patch.setattr(Leader, "examine", lambda self, asked: self._compared(asked))


def _compares_once(patch: pytest.MonkeyPatch) -> None:
    """A follower compares the logs when it becomes one, and never again."""
    wanted, take = Following.wanted, Following.take
    compared: dict[tuple[Any, int, int], bool] = {}

    def asks(self: Following, bytes_max: int) -> FetchPartition | None:
        found = wanted(self, bytes_max)
        if found is not None and compared.get((self.key, self.epoch, id(self.log))):
            found.last_fetched_epoch = -1
        return found

    def takes(self: Following, asked: FetchPartition, found: PartitionData, now: int, effects: list[Effect]) -> bool:
        if found.error_code is ErrorCode.NONE and found.diverging_epoch.epoch < 0:
            compared[self.key, self.epoch, id(self.log)] = True
        return take(self, asked, found, now, effects)

    patch.setattr(Following, "wanted", asks)
    patch.setattr(Following, "take", takes)


def _cuts_to_high_watermark(patch: pytest.MonkeyPatch, *, only_after_start: bool) -> None:
    add = Fetcher.add
    known: dict[int, Any] = {}

    def cuts(self: Fetcher, following: Following) -> None:
        add(self, following)
        log = following.log
        is_first = known.get(id(log)) != self._me
        known[id(log)] = self._me
        if log.high_watermark < log.written_end and (is_first or not only_after_start):
            following.move(Pace.CUTTING)
            self._effects.append(CutLog(following.key, log.high_watermark, 0))

    patch.setattr(Fetcher, "add", cuts)


def _by_offsets(self: Leader, asked: Asked) -> Verdict:
    log = self._log
    return FITS if log.start_offset <= asked.offset <= log.written_end else Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)


def _without_epochs_in_answers(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: asked for an epoch that it never had, the leader answers with the start of a later one."""
    compared = Leader._compared

    def by_ends(self: Leader, asked: Asked) -> Verdict:
        found = compared(self, asked)
        if found.diverging is None:
            return found
        _, end_offset = found.diverging
        return FITS if end_offset >= asked.offset else Verdict(diverging=(asked.last_fetched_epoch, end_offset))

    patch.setattr(Leader, "_compared", by_ends)


@caught_by(*INCOMPLETE)
def truncates_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new follower truncates to its high watermark, and the logs are not compared."""
    _cuts_to_high_watermark(patch, only_after_start=False)
    patch.setattr(Leader, "_compared", _by_offsets)


@caught_by(*DIVERGED)
def kip_101_only(patch: pytest.MonkeyPatch) -> None:
    _does_not_fence(patch)
    _compares_once(patch)
    _without_epochs_in_answers(patch)


@caught_by(*DIVERGED)
def kip_279_only(patch: pytest.MonkeyPatch) -> None:
    _does_not_fence(patch)
    _compares_once(patch)


@caught_by(*DIVERGED)
def kip_320_first_try(patch: pytest.MonkeyPatch) -> None:
    """Every fetch is compared, but its leader epoch is not checked."""
    _does_not_fence(patch)


# --- R01 to R10 -------------------------------------------------------------------------------------------------------


@caught_by(*INCOMPLETE)
def r01_cuts_to_the_high_watermark_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """R01: the high watermark is low after a restart."""
    _cuts_to_high_watermark(patch, only_after_start=True)


@caught_by(*DIVERGED, "Convergence")
def r02_tells_no_epoch_where_logs_part(patch: pytest.MonkeyPatch) -> None:
    """R02: KIP-279 undone, all else unchanged."""
    _without_epochs_in_answers(patch)


@caught_by(*INCOMPLETE, "Convergence")
def r03_does_not_note_its_epoch_when_elected(patch: pytest.MonkeyPatch) -> None:
    """R03: only with the first record that it writes."""
    build = Leader.__init__

    def forgets(self: Leader, *arguments: Any) -> None:
        build(self, *arguments)
        self._log.epochs.cut_end(self._log.written_end)

    patch.setattr(Leader, "__init__", forgets)


@caught_by(*DIVERGED)
def r04_serves_followers_of_an_older_epoch(patch: pytest.MonkeyPatch) -> None:
    """R04: they may yet have to truncate records that they acknowledge, by order of a leader in between."""
    examine = Leader.examine

    def lenient(self: Leader, asked: Asked) -> Verdict:
        return self._compared(asked) if asked.leader_epoch < self.epoch else examine(self, asked)

    patch.setattr(Leader, "examine", lenient)


@caught_by("LogMatching", "ConsistentRead")
def r05_takes_the_high_watermark_before_it_cuts(patch: pytest.MonkeyPatch) -> None:
    """R05: diverging records are exposed as committed."""
    take = Following.take

    def too_soon(self: Following, asked: FetchPartition, found: PartitionData, now: int, effects: list[Effect]) -> bool:
        if found.diverging_epoch.epoch >= 0 and asked.current_leader_epoch == self.epoch:
            self._learn_high_watermark(found.high_watermark, effects)
        return take(self, asked, found, now, effects)

    patch.setattr(Following, "take", too_soon)


@caught_by(*DIVERGED)
def r06_counts_a_diverging_fetch(patch: pytest.MonkeyPatch) -> None:
    """R06: its offset belongs to a different record."""
    on_fetch = Leader.on_fetch

    def counts(self: Leader, follower_id: int, broker_epoch: int, asked: Asked, now: int) -> Verdict:
        verdict = on_fetch(self, follower_id, broker_epoch, asked, now)
        if verdict.diverging is not None and follower_id in self.progress:
            self._note(self.progress[follower_id], broker_epoch, min(asked.offset, self._log.written_end), now)
            self.advance(now)
        return verdict

    patch.setattr(Leader, "on_fetch", counts)


@caught_by("EligibleProposal")
def r07_proposes_fenced_replicas(patch: pytest.MonkeyPatch) -> None:
    """R07: any replica that fetches is accepted."""

    def whoever_fetches(self: Leader, follower_id: int, progress: Progress) -> bool:
        return self._known_epoch(follower_id) == progress.broker_epoch

    patch.setattr(Leader, "_is_eligible", whoever_fetches)


@caught_by(*INCOMPLETE, "EligibleProposal")
def r08_names_the_life_that_the_metadata_knows(patch: pytest.MonkeyPatch) -> None:
    """R08: though a different life fetched, which may have had more."""

    def active(self: Leader, follower_id: int, _progress: Progress) -> bool:
        broker = self._neighbours.brokers.get(follower_id)
        return broker is not None and broker.is_active

    def newest(self: Leader, broker_id: int) -> int:
        return self._my_epoch if broker_id == self._me else self._known_epoch(broker_id)

    patch.setattr(Leader, "_is_eligible", active)
    patch.setattr(Leader, "_epoch_to_name", newest)


@caught_by("OutsidersChangeNothing")
def counts_a_broker_epoch_that_the_image_does_not_have(patch: pytest.MonkeyPatch) -> None:
    """Any epoch from the known one on is accepted as the follower's newest life."""
    on_fetch = Leader.on_fetch

    def trusts(self: Leader, follower_id: int, broker_epoch: int, asked: Asked, now: int) -> Verdict:
        progress = self.progress.get(follower_id)
        known_epoch = max(self._known_epoch(follower_id), -1 if progress is None else progress.broker_epoch)
        if broker_epoch <= known_epoch or progress is None:
            return on_fetch(self, follower_id, broker_epoch, asked, now)
        verdict = self.examine(asked)
        if verdict.fits:
            self._note(progress, broker_epoch, asked.offset, now)
        return verdict

    patch.setattr(Leader, "on_fetch", trusts)


@caught_by("ReplicationQuorumSuperset", "Convergence", *INCOMPLETE)
def r09_thinks_anew_when_there_is_no_answer(patch: pytest.MonkeyPatch) -> None:
    """R09: the proposal may have been carried out all the same; if not, it is not sent again."""
    on_lost = Changes.on_lost

    def forgets(self: Changes, number: int, now: int) -> None:
        if number == self._awaited:
            for key, proposal in self._sent.items():
                leader = self._find(key)
                if leader is not None:
                    leader.take_back(proposal)
        on_lost(self, number, now)

    patch.setattr(Changes, "on_lost", forgets)


@caught_by("Convergence")
def r09_takes_every_refusal_for_final(patch: pytest.MonkeyPatch) -> None:
    """R09: also the refusal of a former controller; the proposal stays pending forever."""
    on_answer = Changes.on_answer

    def final(self: Changes, number: int, reply: AlteredPartitions, now: int) -> None:
        sent = dict(self._sent) if number == self._awaited else {}
        refused = reply.code is not ErrorCode.NONE
        on_answer(self, number, reply, now)
        for key in sent:
            if refused or any(each.code is not ErrorCode.NONE for each in reply.partitions):
                self._waiting.pop(key, None)
                self._again = deque(each for each in self._again if each[1] != key)

    patch.setattr(Changes, "on_answer", final)


@caught_by(*INCOMPLETE)
def r10_commits_alone(patch: pytest.MonkeyPatch) -> None:
    """R10: with fewer replicas in sync than the minimum; then the ELR is not complete, and the last may lose all."""
    advance = Leader.advance

    def alone(self: Leader, now: int) -> bool:
        in_sync_min, self._in_sync_min = self._in_sync_min, 1
        try:
            return advance(self, now)
        finally:
            self._in_sync_min = in_sync_min

    patch.setattr(Leader, "advance", alone)


@caught_by(*INCOMPLETE)
def r10_vouches_for_what_it_has_lost(patch: pytest.MonkeyPatch) -> None:
    """R10: a broker that lost records registers as if it had not, and is elected."""
    die = Broker.die

    def claims(self: Broker, *, loses: bool) -> None:
        epoch = self.epoch if self.epoch >= 0 else self.disk.last_epoch
        die(self, loses=loses)
        self.disk.last_epoch = epoch

    patch.setattr(Broker, "die", claims)


# --- R28, R29 ---------------------------------------------------------------------------------------------------------


@caught_by("Convergence")
def r28_keeps_the_leader_epoch_of_a_session(patch: pytest.MonkeyPatch) -> None:
    """R28, KAFKA-9338: a new leader epoch alone does not cause a partition to be named again."""
    ask = SourceSession.ask

    def forgets(self: SourceSession, wanted: dict[Any, FetchPartition | None]) -> FetchRequestData:
        for key, each in wanted.items():
            known = self.told.get(key)
            if each is not None and known is not None and known.fetch_offset == each.fetch_offset:
                wanted[key] = known
        return ask(self, wanted)

    patch.setattr(SourceSession, "ask", forgets)


@caught_by("LogMatching")
def r28_goes_on_with_a_session_whose_answer_is_lost(patch: pytest.MonkeyPatch) -> None:
    """R28, KAFKA-8052: it does not know which of its requests the source has received."""
    patch.setattr(SourceSession, "lost", lambda _self: None)


@caught_by("OffsetsDoNotGoBack")
def r29_tells_ends_before_its_epoch_is_committed(patch: pytest.MonkeyPatch) -> None:
    """R29: its high watermark is lower than ends reported before."""
    patch.setattr(Leader, "is_settled", property(lambda _self: True))


# --- our own rules ----------------------------------------------------------------------------------------------------


@caught_by("ReplicationQuorumSuperset", *INCOMPLETE)
def counts_only_on_those_known_to_be_in_sync(patch: pytest.MonkeyPatch) -> None:
    """A proposal may be in force before the leader learns of it."""
    propose = Leader._propose

    def narrow(self: Leader, isr: tuple[int, ...]) -> None:
        propose(self, isr)
        self.maximal_isr = self.isr

    patch.setattr(Leader, "_propose", narrow)


@caught_by(*INCOMPLETE)
def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A follower fetches on while its records are not yet synced."""
    patch.setattr(Following, "is_durable", property(lambda _self: True))


@caught_by(*INCOMPLETE, "AppliedHighWatermark")
def lets_followers_join_short_of_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new leader's high watermark is old; committed records may reach up to its epoch's start."""

    def may_join(self: Leader, follower_id: int, progress: Progress, _now: int) -> bool:
        return progress.end_offset >= self._log.high_watermark and self._is_eligible(follower_id, progress)

    patch.setattr(Leader, "_may_join", may_join)


@caught_by(*INCOMPLETE, "OffsetsDoNotGoBack", "ValidFetcherState", "AssertionError")
def believes_metadata_of_before_its_life(patch: pytest.MonkeyPatch) -> None:
    """A broker led, lost records, and leads on by the metadata on its disk; it then also reports end offsets."""
    on_image = Replicas._on_image

    def believes(self: Replicas, event: ImageLearned, now: int) -> None:
        own = event.image.brokers.get(self.broker_id)
        epoch, self.broker_epoch = self.broker_epoch, -1 if own is None else own.epoch
        on_image(self, event, now)
        self.broker_epoch = epoch

    patch.setattr(Replicas, "_on_image", believes)


@caught_by(*INCOMPLETE)
def believes_in_epochs_before_the_start_of_its_log(patch: pytest.MonkeyPatch) -> None:
    """The log does not record where an epoch ended before its first record."""
    compared = Leader._compared

    def guesses(self: Leader, asked: Asked) -> Verdict:
        found = compared(self, asked)
        log = self._log
        if found.error is ErrorCode.OFFSET_OUT_OF_RANGE and asked.offset >= log.start_offset:
            epoch, end_offset = log.epochs.end_of(asked.last_fetched_epoch, log.written_end)
            if epoch >= 0:
                return FITS if end_offset >= asked.offset else Verdict(diverging=(epoch, end_offset))
        return found

    patch.setattr(Leader, "_compared", guesses)


@caught_by(*INCOMPLETE, "Convergence")
def remembers_epochs_without_records(patch: pytest.MonkeyPatch) -> None:
    """It led and wrote nothing; records of an earlier epoch that it then fetches seem to be of that epoch."""
    build = Following.__init__

    def remembers(self: Following, key: Key, name: str, log: ReplicaLog, source: int, epoch: int) -> None:
        before = list(log.epochs)
        build(self, key, name, log, source, epoch)
        log.epochs.take_back(before)

    patch.setattr(Following, "__init__", remembers)


@caught_by(*INCOMPLETE, "AssertionError", "ValidFetcherState")
def leads_while_its_log_is_being_cut(patch: pytest.MonkeyPatch) -> None:
    """The start of its epoch is then after the end of its log."""
    patch.setattr(Replica, "is_cutting", property(lambda _self: False))


# --- DeleteRecords ----------------------------------------------------------------------------------------------------


@caught_by("LowWatermark", "DeletedStaysDeleted")
def acknowledges_deletions_alone(patch: pytest.MonkeyPatch) -> None:
    """DeleteRecords is acknowledged once the leader's own log start has moved."""
    patch.setattr(Leader, "low_watermark", lambda self: self._log.start_offset)


@caught_by("LowWatermark")
def acknowledges_deletions_without_replicas_out_of_sync(patch: pytest.MonkeyPatch) -> None:
    """A live replica outside ISR and ELR still has the records."""

    def is_eligible(self: Leader, follower_id: int, _progress: Progress) -> bool:
        return follower_id in self.maximal_isr or follower_id in self._elr

    patch.setattr(Leader, "_counts_for_low_watermark", is_eligible)


@caught_by("DeletedStaysDeleted")
def acknowledges_deletions_without_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """A replica in the ELR is down; when all others are gone it leads, and the records are back."""
    counts = Leader._counts_for_low_watermark

    def is_live(self: Leader, follower_id: int, progress: Progress) -> bool:
        elr, self._elr = self._elr, ()
        try:
            return counts(self, follower_id, progress)
        finally:
            self._elr = elr

    patch.setattr(Leader, "_counts_for_low_watermark", is_live)


@caught_by("DeletedStaysDeleted")
def lets_replicas_join_with_deleted_records(patch: pytest.MonkeyPatch) -> None:
    """A replica that was down joins the ISR before it has moved its log start."""
    may_join = Leader._may_join

    def joins(self: Leader, follower_id: int, progress: Progress, now: int) -> bool:
        log_start_min, self.log_start_min = self.log_start_min, -1
        try:
            return may_join(self, follower_id, progress, now)
        finally:
            self.log_start_min = log_start_min

    patch.setattr(Leader, "_may_join", joins)


@caught_by("DeletedStaysDeleted")
def forgets_deletions_of_earlier_leaders(patch: pytest.MonkeyPatch) -> None:
    """A new leader requires of joining replicas only the deletions that it acknowledged itself."""
    build = Leader.__init__

    def forgets(self: Leader, *arguments: Any) -> None:
        build(self, *arguments)
        self.log_start_min = -1

    patch.setattr(Leader, "__init__", forgets)


@caught_by("LowWatermark", "DeletedStaysDeleted")
def reports_a_log_start_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """The follower reports the log start that it is about to set, and is killed before it is set."""
    wanted = Following.wanted

    def too_soon(self: Following, bytes_max: int) -> FetchPartition | None:
        found = wanted(self, bytes_max)
        if found is not None and self.is_trimming:
            found.log_start_offset = max(found.log_start_offset, self.leader_start)
        return found

    patch.setattr(Following, "wanted", too_soon)


@caught_by("Convergence")
def does_not_report_a_log_start_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A new log start is reported with the next records only: without any, a deletion is never acknowledged."""

    def quietly(self: Fetcher, key: Key) -> None:
        self._following[key].trimmed(self._effects)

    patch.setattr(Fetcher, "on_trimmed", quietly)


# --- batches of several records, logs that fail -----------------------------------------------------------------------


@caught_by("WholeBatches", "Convergence")
def commits_all_but_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """The high watermark then lies inside a batch."""
    old, new = "log.advance_high_watermark(end_offset)", "log.advance_high_watermark(end_offset - 1)"
    plant(patch, Edit(Leader.advance, old, new))


@caught_by("FailedLogs", "Convergence")
def goes_on_with_a_log_that_has_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicas, "_on_log_failed", lambda _self, _event: None)


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "Replication with one rule taken out"
ABOUT = """\
The replication core (`penstock.replication`) in worlds of replicas (`tests/simulation/replication_core/mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
