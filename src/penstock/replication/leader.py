"""Leading a partition: who is in sync, what is committed, and whether a follower's log fits.

Invariants: only fetches of this leader epoch count, and of each follower only those with the broker epoch that the
image has for it (R04, R08); a fetch that diverges is no progress (R06); a fetch acknowledges everything before its
offset, durably where the topic asks for that; the high watermark is what everybody has who is in sync or may be by now,
and it rests while fewer are in sync than the topic asks for (R10, KIP-966); a change of the in-sync replicas is asked
for unchanged until the metadata log tells what became of it (R09); nobody is proposed who is fenced, shutting down or
of a former life (R07, R08); every replica in the ISR or ELR has a log start that is not below any start that
DeleteRecords has acknowledged.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from penstock.metadata.cluster_commands import NewIsr
from penstock.metadata.image import Broker, Partition
from penstock.metadata.partition_change import RECOVERING
from penstock.model.errors import ErrorCode
from penstock.replication.ports import Key, ReplicaLog

NOTHING_FETCHED: Final = -1
UNKNOWN_START: Final = -1
NEVER_MS: Final = -(1 << 62)


class Asked(Protocol):
    """What a follower's fetch says of one partition; `fetch_sessions.Wanted` is one."""

    @property
    def offset(self) -> int:
        """Where it goes on: it has everything before."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that it believes in."""

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the record before the offset; -1 for a log without records."""

    @property
    def log_start(self) -> int:
        """Where its log begins."""


class Verdict(NamedTuple):
    """Whether a fetch can be served: if not, why, or where the logs part (epoch, end offset)."""

    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None

    @property
    def fits(self) -> bool:
        """Whether the follower's log is a prefix of this one."""
        return self.error is ErrorCode.NONE and self.diverging is None


FITS: Final = Verdict()


class Neighbours:
    """The brokers around, shared by all partitions that this one leads."""

    __slots__ = ("brokers", "heard_ms", "lag_time_max_ms")

    def __init__(self, lag_time_max_ms: int) -> None:
        self.brokers: Mapping[int, Broker] = {}
        """As the metadata log has them."""
        self.heard_ms: dict[int, int] = {}
        """When each last fetched anything: in an incremental session that tells of all its partitions."""
        self.lag_time_max_ms = lag_time_max_ms


class Progress:
    """How far a follower is, as its fetches in this epoch tell."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end", "start_offset")

    def __init__(self, caught_up_ms: int) -> None:
        self.broker_epoch = -1
        self.end_offset = NOTHING_FETCHED
        """Everything before it is there."""
        self.start_offset = UNKNOWN_START
        """Where its log starts, durably, as its newest life has reported."""
        self.caught_up_ms = caught_up_ms
        """When it was last known to have all that this log had."""
        self.fetched_ms = NEVER_MS
        self.leader_end = 1 << 62
        """Where this log ended at that time."""


class Leader:
    """The leadership of one partition in one epoch."""

    __slots__ = (
        "_adding",
        "_elr",
        "_in_sync_min",
        "_is_recovering",
        "_key",
        "_log",
        "_me",
        "_my_epoch",
        "_neighbours",
        "epoch",
        "isr",
        "log_start_min",
        "low_watermark_told",
        "maximal_isr",
        "partition_epoch",
        "progress",
        "proposal",
        "replicas",
        "start_offset",
    )

    def __init__(
        self,
        me: tuple[int, int],
        key: Key,
        log: ReplicaLog,
        partition: Partition,
        in_sync_min: int,
        neighbours: Neighbours,
        now: int,
    ) -> None:
        self._me, self._my_epoch = me
        self._key = key
        self._log = log
        self._neighbours = neighbours
        self.epoch = partition.leader_epoch
        self.start_offset = log.written_end
        """Where the epoch begins. Whatever was committed before lies before it."""
        log.epochs.begin(self.epoch, self.start_offset)  # R03: before anybody is told anything in this epoch
        self.progress = {
            each: Progress(now if each in partition.isr else NEVER_MS)
            for each in partition.replicas
            if each != self._me
        }
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """As the metadata log has it."""
        self.maximal_isr: tuple[int, ...] = ()
        """Everybody who may be in sync by now: nothing is committed that one of them lacks."""
        self.partition_epoch = -1
        self.proposal: NewIsr | None = None
        """What the controller was asked for, or is about to be."""
        self.log_start_min = log.start_offset
        """A replica joins the ISR only if its log does not start before this. Whatever start DeleteRecords acknowledged
        in an earlier epoch, this log has reached it, but which part of its own start that is, no leader knows."""
        self.low_watermark_told = UNKNOWN_START
        self._elr: tuple[int, ...] = ()
        self._adding: tuple[int, ...] = ()
        self._in_sync_min = 1
        self._is_recovering = False
        self.learn(partition, in_sync_min)

    # --- metadata -------------------------------------------------------------------------------------------------

    def learn(self, partition: Partition, in_sync_min: int) -> None:
        """What the metadata log has of this epoch's partition by now. Only it ends a proposal for good."""
        self._in_sync_min = min(in_sync_min, len(partition.replicas))
        if partition.partition_epoch <= self.partition_epoch:
            return
        self.partition_epoch = partition.partition_epoch
        if len(self.replicas) == 1:  # until now it was acknowledged by itself wherever its log started
            self.log_start_min = max(self.log_start_min, self._log.start_offset)
        self.replicas = partition.replicas
        for each in partition.replicas:
            if each != self._me and each not in self.progress:
                self.progress[each] = Progress(NEVER_MS)
        self.isr = self.maximal_isr = partition.isr
        self._elr = partition.eligible_leader_replicas
        self._adding = partition.adding_replicas
        self.proposal = None
        self._is_recovering = partition.leader_recovery_state == RECOVERING

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be promised, and anything be committed."""
        return len(self.isr) >= self._in_sync_min

    @property
    def is_short(self) -> bool:
        """Whether there is something to propose before long."""
        return len(self.isr) < len(self.replicas) or self._is_recovering

    # --- fetches --------------------------------------------------------------------------------------------------

    def examine(self, asked: Asked) -> Verdict:
        """Whether a fetch can be served by now; notes nothing."""
        if asked.leader_epoch != self.epoch:
            is_old = asked.leader_epoch < self.epoch
            return Verdict(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        return self._compared(asked)

    def _compared(self, asked: Asked) -> Verdict:
        """Where two logs agree on the epoch of a record, they agree on all before it (KIP-101, KIP-279, KIP-595)."""
        log = self._log
        if asked.offset < log.start_offset:
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        if asked.last_fetched_epoch < 0:
            return FITS if asked.offset <= log.written_end else Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        first = next(iter(log.epochs), None)
        if first is None or asked.last_fetched_epoch < first.epoch:
            # Who wrote what lies before its start this log cannot tell: all of that must go, not only an end.
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = log.epochs.end_of(asked.last_fetched_epoch, log.written_end)
        if epoch < 0:
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
            return Verdict(diverging=(epoch, end_offset))
        return FITS

    def on_fetch(self, follower_id: int, broker_epoch: int, asked: Asked, now: int) -> Verdict:
        """A follower fetches, and so tells how far it is."""
        verdict = self.examine(asked)
        if verdict.error in _EPOCH_ERRORS:
            return verdict
        progress = self.progress.get(follower_id)
        if progress is None or follower_id not in self.replicas:
            return Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)  # it knows of a replica that is not known here yet
        broker = self._neighbours.brokers.get(follower_id)
        if broker is None or broker_epoch > broker.epoch:
            # Either no broker has this epoch, or the follower has registered anew and this image does not have it yet.
            # The first must not count. The second tries again after its backoff, and this image has it soon.
            return Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_epoch < broker.epoch:
            return Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # sent in a former life: it may have less by now
        if verdict.fits:
            # Once the logs fit, a start never goes back in one life and epoch: a fetch that comes late changes nothing.
            is_same_life = broker_epoch == progress.broker_epoch
            progress.start_offset = max(progress.start_offset, asked.log_start) if is_same_life else asked.log_start
            self._note(progress, broker_epoch, asked.offset, now)
        return verdict

    def _known_epoch(self, broker_id: int) -> int:
        broker = self._neighbours.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _note(self, progress: Progress, broker_epoch: int, offset: int, now: int) -> None:
        if broker_epoch == progress.broker_epoch and offset < progress.end_offset:
            return  # asked earlier, and come late: in one life and epoch, nobody cuts what fits
        log_end = self._log.written_end
        if broker_epoch != progress.broker_epoch and progress.broker_epoch >= 0:
            progress.caught_up_ms, progress.leader_end = NEVER_MS, 1 << 62  # what it was in another life says nothing
        if offset >= log_end:
            progress.caught_up_ms = now
        elif offset >= progress.leader_end:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        progress.broker_epoch = broker_epoch
        progress.end_offset = offset
        progress.fetched_ms = now
        progress.leader_end = log_end

    # --- the high watermark ---------------------------------------------------------------------------------------

    def appended(self, base_offset: int) -> None:
        """Records were appended: followers that had all are behind from now on, those not heard of since earlier."""
        heard_ms = self._neighbours.heard_ms
        for follower_id, progress in self.progress.items():
            if progress.end_offset >= base_offset:
                progress.caught_up_ms = max(progress.caught_up_ms, heard_ms.get(follower_id, 0))

    def advance(self, now: int) -> bool:
        """Moves the high watermark to what everybody has who may be in sync; whether that is news."""
        log = self._log
        before = log.high_watermark
        end_offset = log.durable_end
        if end_offset <= before or not self.has_enough_in_sync:
            return False
        for follower_id, progress in self.progress.items():
            if progress.end_offset < end_offset and (
                follower_id in self.maximal_isr or self._is_about_to_join(follower_id, progress, now)
            ):
                end_offset = progress.end_offset
                if end_offset <= before:
                    return False
        log.advance_high_watermark(end_offset)
        return True

    def _is_about_to_join(self, follower_id: int, progress: Progress, now: int) -> bool:
        """One that keeps up is waited for: under load it would for ever be a little short of the high watermark."""
        keeps_up = now - progress.caught_up_ms <= self._neighbours.lag_time_max_ms
        return keeps_up and progress.end_offset >= 0 and self._is_eligible(follower_id, progress)

    # --- the low watermark ----------------------------------------------------------------------------------------

    def low_watermark(self) -> int:
        """The lowest log start among live replicas and eligible leaders; -1 while one of them has not reported its own.

        Not counted: a replica that is being added and has not begun to fetch. It may wait for its turn for hours.
        """
        low = self._log.start_offset
        for each, progress in self.progress.items():
            if self._counts_for_low_watermark(each, progress):
                is_newest_life = progress.broker_epoch >= self._known_epoch(each)
                low = min(low, progress.start_offset if is_newest_life else UNKNOWN_START)
        return low

    def _counts_for_low_watermark(self, follower_id: int, progress: Progress) -> bool:
        if follower_id in self.maximal_isr or follower_id in self._elr:
            return True
        broker = self._neighbours.brokers.get(follower_id)
        is_live = broker is not None and not broker.is_fenced and follower_id in self.replicas
        return is_live and (progress.end_offset >= 0 or follower_id not in self._adding)

    def settle_start(self) -> int:
        """The low watermark, which DeleteRecords may acknowledge: a log that starts before it joins no more."""
        low = self.low_watermark()
        self.log_start_min = max(self.log_start_min, low)
        return low

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark has reached this epoch; before, ends could seem to go back (R29, KIP-207)."""
        return self._log.high_watermark >= self.start_offset

    # --- who is in sync -------------------------------------------------------------------------------------------

    def _is_eligible(self, follower_id: int, progress: Progress) -> bool:
        broker = self._neighbours.brokers.get(follower_id)
        return broker is not None and broker.is_fit and broker.epoch == progress.broker_epoch

    def _may_join(self, follower_id: int, progress: Progress, now: int) -> bool:
        """Whether it has all that is committed, by this leader or, before this epoch, by others, and keeps up."""
        has_all = progress.end_offset >= max(self._log.high_watermark, self.start_offset)
        has_all = has_all and progress.start_offset >= self.log_start_min
        return has_all and not self._is_late(progress, now) and self._is_eligible(follower_id, progress)

    def _is_late(self, progress: Progress, now: int) -> bool:
        is_behind = progress.end_offset < self._log.written_end
        return is_behind and now - progress.caught_up_ms > self._neighbours.lag_time_max_ms

    def is_followed(self) -> bool:
        """Whether all is committed and everybody in sync is at the end of the log, so that nobody can be late."""
        log_end = self._log.written_end
        if self._log.high_watermark < log_end:
            return False
        return all(progress.end_offset >= log_end for each, progress in self.progress.items() if each in self.isr)

    def grow(self, now: int) -> bool:
        """Proposes those who have caught up, or that an unclean election has been seen to; whether there is such."""
        if self.proposal is not None:
            return False
        if self._is_recovering:
            self._propose(self.isr)
            return True
        joining = [
            each
            for each in self.replicas
            if each not in self.isr and each != self._me and self._may_join(each, self.progress[each], now)
        ]
        if not joining:
            return False
        self._propose((*self.isr, *joining))
        return True

    def shrink(self, now: int) -> bool:
        """Proposes to go on without those who are late; whether there are any."""
        if self.proposal is not None:
            return False
        staying = tuple(each for each in self.isr if each == self._me or not self._is_late(self.progress[each], now))
        if len(staying) == len(self.isr):
            return False
        self._propose(staying)
        return True

    def _propose(self, isr: tuple[int, ...]) -> None:
        named = tuple((each, self._epoch_to_name(each)) for each in isr)
        self.proposal = NewIsr(*self._key, self.epoch, self.partition_epoch, named)
        self.maximal_isr = tuple(dict.fromkeys((*self.isr, *isr)))

    def _epoch_to_name(self, broker_id: int) -> int:
        """The life in which it fetched, which need not be the one that the metadata log knows (R08, KIP-903)."""
        if broker_id == self._me:
            return self._my_epoch
        fetched_in = self.progress[broker_id].broker_epoch
        return fetched_in if fetched_in >= 0 else self._known_epoch(broker_id)

    def take_back(self, proposal: NewIsr) -> bool:
        """The controller says that this proposal was not and will not be carried out; whether it was the present one.

        Nothing else takes one back: without an answer it may have been carried out.
        """
        if self.proposal is not proposal:
            return False
        self.proposal = None
        self.maximal_isr = self.isr
        return True

    # --- reading nearby -------------------------------------------------------------------------------------------

    def preferred_reader(self, rack: str, offset: int) -> int | None:
        """The replica in a consumer's rack that it should read from (KIP-392); None where that is this one."""
        brokers = self._neighbours.brokers
        own = brokers.get(self._me)
        if not rack or (own is not None and own.rack == rack):
            return None
        nearby = [
            (progress.end_offset, -each)
            for each, progress in self.progress.items()
            if each in self.isr and each in brokers and brokers[each].rack == rack
            if brokers[each].is_active and progress.start_offset <= offset <= progress.end_offset
        ]
        return -max(nearby)[1] if nearby else None


_EPOCH_ERRORS: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
