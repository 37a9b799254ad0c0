"""Leading a partition: the ISR, the high watermark, and whether a follower's log fits.

Invariants: only fetches of this leader epoch count, and of each follower only those with the broker epoch that the
image has for it (R04, R08); a fetch that diverges is no progress (R06); a fetch acknowledges everything before its
offset, durably where the topic requires it; every replica that is in the ISR, or may be by now, has all records below
the high watermark, which does not advance while the ISR is smaller than min.insync.replicas (R10, KIP-966); an ISR
change is proposed unchanged until the metadata log shows its outcome (R09); no replica is added whose broker is fenced,
shutting down or has not fetched under its current broker epoch (R07, R08); every replica in the ISR or ELR has a log
start that is not below any start that DeleteRecords has acknowledged.
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
    """A follower's fetch of one partition; `fetch_sessions.RequestedPartition` implements it."""

    @property
    def offset(self) -> int:
        """The fetch offset: the follower has everything before it."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that the follower assumes."""

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the record before the offset; -1 for a log without records."""

    @property
    def log_start(self) -> int:
        """The follower's log start offset."""


class Verdict(NamedTuple):
    """Whether a fetch can be served: if not, the error, or where the logs diverge (epoch, end offset)."""

    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None

    @property
    def fits(self) -> bool:
        """Whether the follower's log is a prefix of this one."""
        return self.error is ErrorCode.NONE and self.diverging is None


FITS: Final = Verdict()


class Neighbours:
    """The cluster's brokers, shared by all partitions that this broker leads."""

    __slots__ = ("brokers", "heard_ms", "lag_time_max_ms")

    def __init__(self, lag_time_max_ms: int) -> None:
        self.brokers: Mapping[int, Broker] = {}
        """The brokers as of the metadata log."""
        self.heard_ms: dict[int, int] = {}
        """Time of each broker's last fetch: in an incremental session it counts for all its partitions."""
        self.lag_time_max_ms = lag_time_max_ms


class Progress:
    """The progress of a follower, according to its fetches in this leader epoch."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end", "start_offset")

    def __init__(self, caught_up_ms: int) -> None:
        self.broker_epoch = -1
        self.end_offset = NOTHING_FETCHED
        """The follower has everything before this offset."""
        self.start_offset = UNKNOWN_START
        """The follower's durable log start, as reported under its newest broker epoch."""
        self.caught_up_ms = caught_up_ms
        """When the follower was last known to have everything in the leader's log."""
        self.fetched_ms = NEVER_MS
        self.leader_end = 1 << 62
        """The leader's log end offset at `fetched_ms`."""


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
        """Where the epoch begins. All records committed in earlier epochs lie before it."""
        log.epochs.begin(self.epoch, self.start_offset)  # R03: before any response in this epoch
        self.progress = {
            each: Progress(now if each in partition.isr else NEVER_MS)
            for each in partition.replicas
            if each != self._me
        }
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The ISR as of the metadata log."""
        self.maximal_isr: tuple[int, ...] = ()
        """All replicas that may be in sync by now: nothing is committed that one of them lacks."""
        self.partition_epoch = -1
        self.proposal: NewIsr | None = None
        """The ISR change that was, or is about to be, sent to the controller."""
        self.log_start_min = log.start_offset
        """A replica joins the ISR only if its log does not start before this. This log has reached every start that
        DeleteRecords acknowledged in an earlier epoch, but how much of its own start was acknowledged is unknown."""
        self.low_watermark_told = UNKNOWN_START
        self._elr: tuple[int, ...] = ()
        self._adding: tuple[int, ...] = ()
        self._in_sync_min = 1
        self._is_recovering = False
        self.learn(partition, in_sync_min)

    # --- metadata -------------------------------------------------------------------------------------------------

    def learn(self, partition: Partition, in_sync_min: int) -> None:
        """Applies the partition's newest metadata, which ends a proposal. Only `take_back` ends one otherwise."""
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
        """Whether the ISR is large enough to accept acks=all and to commit."""
        return len(self.isr) >= self._in_sync_min

    @property
    def is_short(self) -> bool:
        """Whether an addition to the ISR, or the end of recovery, is still to be proposed."""
        return len(self.isr) < len(self.replicas) or self._is_recovering

    # --- fetches --------------------------------------------------------------------------------------------------

    def examine(self, asked: Asked) -> Verdict:
        """Checks whether a fetch can be served now; records nothing."""
        if asked.leader_epoch != self.epoch:
            is_old = asked.leader_epoch < self.epoch
            return Verdict(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        return self._compared(asked)

    def _compared(self, asked: Asked) -> Verdict:
        """Compares logs: if they agree on a record's epoch, they agree on all before it (KIP-101, KIP-279, KIP-595)."""
        log = self._log
        if asked.offset < log.start_offset:
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        if asked.last_fetched_epoch < 0:
            return FITS if asked.offset <= log.written_end else Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        first = next(iter(log.epochs), None)
        if first is None or asked.last_fetched_epoch < first.epoch:
            # This log has no epochs of records before its start: the follower must discard its log, not only an end.
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end_offset = log.epochs.end_of(asked.last_fetched_epoch, log.written_end)
        if epoch < 0:
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
            return Verdict(diverging=(epoch, end_offset))
        return FITS

    def on_fetch(self, follower_id: int, broker_epoch: int, asked: Asked, now: int) -> Verdict:
        """Handles a follower's fetch, which reports its progress."""
        verdict = self.examine(asked)
        if verdict.error in _EPOCH_ERRORS:
            return verdict
        progress = self.progress.get(follower_id)
        if progress is None or follower_id not in self.replicas:
            return Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)  # its metadata has a replica that this image lacks
        broker = self._neighbours.brokers.get(follower_id)
        if broker is None or broker_epoch > broker.epoch:
            # Either no broker has this epoch, or the follower has registered again and this image lacks it so far. The
            # first must not count. The second retries after its back-off, and this image has it soon.
            return Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_epoch < broker.epoch:
            return Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # from before it registered again: it may have less now
        if verdict.fits:
            # Once the logs fit, a log start never goes back within one broker epoch and leader epoch: a late fetch
            # changes nothing.
            is_same_life = broker_epoch == progress.broker_epoch
            progress.start_offset = max(progress.start_offset, asked.log_start) if is_same_life else asked.log_start
            self._note(progress, broker_epoch, asked.offset, now)
        return verdict

    def _known_epoch(self, broker_id: int) -> int:
        broker = self._neighbours.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _note(self, progress: Progress, broker_epoch: int, offset: int, now: int) -> None:
        if broker_epoch == progress.broker_epoch and offset < progress.end_offset:
            return  # a late fetch: within one broker epoch and leader epoch, a log that fits is not truncated
        log_end = self._log.written_end
        if broker_epoch != progress.broker_epoch and progress.broker_epoch >= 0:
            progress.caught_up_ms, progress.leader_end = NEVER_MS, 1 << 62  # another broker epoch does not count
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
        """Handles an append: a follower that had everything was caught up until its last fetch, and is behind now."""
        heard_ms = self._neighbours.heard_ms
        for follower_id, progress in self.progress.items():
            if progress.end_offset >= base_offset:
                progress.caught_up_ms = max(progress.caught_up_ms, heard_ms.get(follower_id, 0))

    def advance(self, now: int) -> bool:
        """Advances the high watermark to the end that all possibly in-sync replicas have; whether it moved."""
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
        """Whether a follower keeps up and is waited for: under load it would never quite reach the high watermark."""
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
        """The low watermark, which DeleteRecords may acknowledge: a log that starts before it cannot join the ISR."""
        low = self.low_watermark()
        self.log_start_min = max(self.log_start_min, low)
        return low

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark has reached this epoch; before, ends could appear to go back (R29, KIP-207)."""
        return self._log.high_watermark >= self.start_offset

    # --- in-sync replicas -----------------------------------------------------------------------------------------

    def _is_eligible(self, follower_id: int, progress: Progress) -> bool:
        broker = self._neighbours.brokers.get(follower_id)
        return broker is not None and broker.is_fit and broker.epoch == progress.broker_epoch

    def _may_join(self, follower_id: int, progress: Progress, now: int) -> bool:
        """Whether a follower has everything committed by this leader and earlier ones, and keeps up."""
        has_all = progress.end_offset >= max(self._log.high_watermark, self.start_offset)
        has_all = has_all and progress.start_offset >= self.log_start_min
        return has_all and not self._is_late(progress, now) and self._is_eligible(follower_id, progress)

    def _is_late(self, progress: Progress, now: int) -> bool:
        is_behind = progress.end_offset < self._log.written_end
        return is_behind and now - progress.caught_up_ms > self._neighbours.lag_time_max_ms

    def is_followed(self) -> bool:
        """Whether everything is committed and the whole ISR is at the end of the log, so that none can be late."""
        log_end = self._log.written_end
        if self._log.high_watermark < log_end:
            return False
        return all(progress.end_offset >= log_end for each, progress in self.progress.items() if each in self.isr)

    def grow(self, now: int) -> bool:
        """Proposes to add replicas that caught up, or to end the recovery of an unclean election; whether it did."""
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
        """Proposes to remove late replicas from the ISR; whether there are any."""
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
        """The broker epoch of its fetches, which may differ from the one in the metadata log (R08, KIP-903)."""
        if broker_id == self._me:
            return self._my_epoch
        fetched_in = self.progress[broker_id].broker_epoch
        return fetched_in if fetched_in >= 0 else self._known_epoch(broker_id)

    def take_back(self, proposal: NewIsr) -> bool:
        """Withdraws a proposal that the controller did not and will not carry out; whether it was the current one.

        Nothing else withdraws a proposal: without a response it may have been carried out.
        """
        if self.proposal is not proposal:
            return False
        self.proposal = None
        self.maximal_isr = self.isr
        return True

    # --- rack-aware reads -----------------------------------------------------------------------------------------

    def preferred_reader(self, rack: str, offset: int) -> int | None:
        """The replica in a consumer's rack from which it should read (KIP-392); None to read from the leader."""
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
