"""Leader: answers fetches, and advances the high watermark to the offset that a majority has on disk.

Invariants: only synced ends count, including the leader's own; nothing counts as committed before a record of the
leader's own epoch is (KAFKA-12619: the high watermark must be above the epoch's first offset); a diverging fetch is no
progress (KAFKA-13141); a fetch offset may go back, as after a disk wipe (KAFKA-12181), the high watermark never; every
held fetch is answered, at the latest when the leader resigns.
"""

from typing import Any, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.raft.effects import Answer
from penstock.raft.messages import BeginEpoch, Fetch, FetchReply, FetchSnapshot, FetchSnapshotReply, VotersReply
from penstock.raft.ports import EpochEnd, LeaderChange, SnapshotId
from penstock.raft.replica import Replica
from penstock.raft.replicas import ReplicaKey, VotersAt, VoterSet


class Held(NamedTuple):
    """A fetch that waits for records or a higher high watermark."""

    token: Any
    fetch: Fetch
    deadline: int


class PendingChange(NamedTuple):
    """An appended, uncommitted voter set, and the token of the request that waits for it."""

    token: Any
    offset: int


class Progress:
    """Progress of a replica, as seen in its fetches."""

    __slots__ = ("caught_up_at", "end_offset", "fetched_at", "held")

    def __init__(self, now: int) -> None:
        self.end_offset = 0
        """Everything before it is on the replica's disk."""
        self.fetched_at = now
        self.caught_up_at = -1
        self.held: Held | None = None


class Leader:
    """The leadership of one epoch."""

    __slots__ = ("_begin_at", "_elected_at", "_read_at", "_replica", "change", "progress", "start_offset", "wake_at")

    def __init__(self, replica: Replica, granting: tuple[int, ...], now: int) -> None:
        self._replica = replica
        self._elected_at = now
        self.progress: dict[ReplicaKey, Progress] = {}
        self.change: PendingChange | None = None
        self._read_at: dict[SnapshotId, int] = {}
        self.start_offset = replica.log.end_offset
        """The first offset of the epoch."""
        self._begin_at = now
        self.wake_at = now
        voters = replica.voters.latest
        records: list[LeaderChange | VoterSet] = [
            LeaderChange(replica.node_id, tuple(map(voters.key_of, voters.ids)), granting)
        ]
        if replica.voters.latest_offset < 0 and not replica.snapshots.ids:
            records.append(voters)  # from now on the log defines it, not the configuration
        end_offset = replica.log.append_control(replica.state.epoch, records, now)
        if len(records) > 1:
            replica.learn_voters(VotersAt(end_offset - 1, voters))

    # --- fetches --------------------------------------------------------------------------------------------------

    def on_fetch(self, token: Any, fetch: Fetch, now: int) -> None:
        """Answers at once if there is something to send, else holds the fetch."""
        replica = self._replica
        refused = self._misfit(fetch)
        progress = self._contact(fetch.replica, now)
        if progress.held is not None:
            self._answer_held(progress)
        if refused is not None:
            replica.effects.append(Answer(token, refused))
            return
        progress.end_offset = fetch.offset
        log_end = replica.log.end_offset
        if fetch.offset == log_end:
            progress.caught_up_at = now
        self.advance()
        if fetch.offset < log_end or fetch.high_watermark < replica.high_watermark or fetch.max_wait_ms <= 0:
            replica.effects.append(Answer(token, self._found(fetch)))
            return
        deadline = now + fetch.max_wait_ms
        progress.held = Held(token, fetch, deadline)
        self.wake_at = min(self.wake_at, deadline)

    def _contact(self, key: ReplicaKey, now: int) -> Progress:
        key = self._known_as(key)
        progress = self.progress.get(key)
        if progress is None:
            progress = self.progress[key] = Progress(now)
        progress.fetched_at = now
        return progress

    def _known_as(self, key: ReplicaKey) -> ReplicaKey:
        """A voter's key as in the voter set, which may lack the directory id."""
        voters = self._replica.voters.latest
        return voters.key_of(key.node_id) if key in voters else key

    def _misfit(self, fetch: Fetch) -> FetchReply | None:
        """The reply to a fetch whose log is no prefix of this one: where they diverge, or the snapshot to fetch."""
        replica = self._replica
        log = replica.log
        start = log.start_offset
        if fetch.offset < start or (start > 0 and fetch.last_epoch < log.epoch_before(start)):
            # Also if the follower's log is longer: the logs diverge before the start of this one.
            return self._reply(snapshot=replica.snapshots.ids[-1])
        if fetch.offset == 0:
            return None
        end = log.end_of_epoch(fetch.last_epoch)
        if end.epoch != fetch.last_epoch or end.end_offset < fetch.offset:
            return self._reply(diverging=end)
        return None

    def _reply(
        self, records: Any = None, diverging: EpochEnd | None = None, snapshot: SnapshotId | None = None
    ) -> FetchReply:
        replica = self._replica
        return FetchReply(
            ErrorCode.NONE,
            replica.state.epoch,
            replica.node_id,
            replica.high_watermark,
            replica.log.start_offset,
            records,
            diverging,
            snapshot,
        )

    def _found(self, fetch: Fetch) -> FetchReply:
        log = self._replica.log
        if fetch.offset == log.end_offset:
            return self._reply()
        return self._reply(records=log.read(fetch.offset, fetch.bytes_max))

    def _answer_held(self, progress: Progress) -> None:
        held = progress.held
        assert held is not None
        progress.held = None
        misfit = self._misfit(held.fetch)  # the log start offset may have advanced meanwhile
        self._replica.effects.append(Answer(held.token, misfit if misfit is not None else self._found(held.fetch)))

    def answer_news(self) -> None:
        """Answers held fetches for which there are records or a higher high watermark."""
        replica = self._replica
        end_offset, high_watermark = replica.log.end_offset, replica.high_watermark
        for progress in self.progress.values():
            held = progress.held
            if held is not None and (held.fetch.offset < end_offset or held.fetch.high_watermark < high_watermark):
                self._answer_held(progress)

    def on_fetch_snapshot(self, token: Any, fetch: FetchSnapshot, now: int) -> None:
        """Sends a chunk of a snapshot."""
        replica = self._replica
        self._contact(fetch.replica, now)
        chunk = replica.snapshots.read(fetch.snapshot, fetch.position, fetch.bytes_max)
        error = ErrorCode.NONE
        if chunk is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= fetch.position < chunk.size_bytes:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        reply = FetchSnapshotReply(error, replica.state.epoch, replica.node_id, fetch.snapshot)
        if error is ErrorCode.NONE and chunk is not None:
            self._read_at[fetch.snapshot] = now
            reply = reply._replace(size_bytes=chunk.size_bytes, position=fetch.position, data=chunk.data)
        replica.effects.append(Answer(token, reply))

    def is_read(self, start_offset: int, now: int) -> bool:
        """Whether a replica is reading a snapshot that ends before an offset.

        If that were deleted, a slow reader would start over with newer snapshots again and again.
        """
        since = now - self._replica.settings.fetch_timeout_ms
        self._read_at = {snapshot: at for snapshot, at in self._read_at.items() if at >= since}
        return any(snapshot.end_offset < start_offset for snapshot in self._read_at)

    # --- the high watermark ---------------------------------------------------------------------------------------

    @property
    def has_committed(self) -> bool:
        """Whether a record of this epoch is committed; before that the leader does not know which records are."""
        return self._replica.high_watermark > self.start_offset

    def advance(self) -> None:
        """Raises the high watermark to the end that a majority has on disk, if that is in this epoch."""
        replica = self._replica
        offset = self._majority_end()
        if offset > self.start_offset and replica.raise_high_watermark(offset):
            self.answer_news()
            self._finish_change()

    def _majority_end(self) -> int:
        """The log end that a majority of the voters has on disk."""
        voters = self._replica.voters.latest
        ends = sorted(self._synced_end(voters.key_of(voter_id)) for voter_id in voters.ids)
        return ends[-voters.majority]

    def _synced_end(self, key: ReplicaKey) -> int:
        if key.node_id == self._replica.node_id:
            return self._replica.log.synced_end
        progress = self.progress.get(key)
        return progress.end_offset if progress is not None else 0

    # --- voters ---------------------------------------------------------------------------------------------------

    def replace_voters(self, voters: VoterSet, token: Any, now: int) -> None:
        """Appends a voter set, which is in force from here on; the token is answered when it is committed."""
        replica = self._replica
        end_offset = replica.log.append_control(replica.state.epoch, [voters], now)
        replica.learn_voters(VotersAt(end_offset - 1, voters))
        self.change = PendingChange(token, end_offset - 1)
        self.appended()

    def appended(self) -> None:
        """Syncs appended records, and answers the fetches that wait for them."""
        self._replica.sync()
        self.answer_news()

    def _finish_change(self) -> None:
        change = self.change
        if change is not None and change.offset < self._replica.high_watermark:
            self.change = None
            self._answer_change(change, ErrorCode.NONE)

    def _answer_change(self, change: PendingChange, error: ErrorCode, message: str = "") -> None:
        replica = self._replica
        if change.token is not None:
            reply = VotersReply(error, replica.state.epoch, replica.state.leader_id, message)
            replica.effects.append(Answer(change.token, reply))

    @property
    def is_removed(self) -> bool:
        """Whether a committed voter set no longer has this leader (KIP-853)."""
        return not self._replica.is_voter

    # --- time -----------------------------------------------------------------------------------------------------

    def on_time(self, now: int) -> bool:
        """Answers expired fetches and announces itself; False if no majority has fetched for too long."""
        replica = self._replica
        quorum_until = self._heard_from_majority_at(now) + replica.settings.check_quorum_ms
        if now >= quorum_until:
            return False
        if now >= self._begin_at:
            self._announce(now)
        wake_at = min(quorum_until, self._begin_at)
        for key, progress in list(self.progress.items()):
            held = progress.held
            if held is None:
                self._forget_idle(key, progress, now)
            elif held.deadline <= now:
                self._answer_held(progress)
            else:
                wake_at = min(wake_at, held.deadline)
        self.wake_at = wake_at
        return True

    def _heard_from_majority_at(self, now: int) -> int:
        replica = self._replica
        voters = replica.voters.latest
        heard = sorted(
            now if voter_id == replica.node_id else self._heard_from_at(voters.key_of(voter_id))
            for voter_id in voters.ids
        )
        return heard[-voters.majority]

    def _heard_from_at(self, key: ReplicaKey) -> int:
        progress = self.progress.get(key)
        return max(progress.fetched_at, self._elected_at) if progress is not None else self._elected_at

    def _announce(self, now: int) -> None:
        """Sends BeginQuorumEpoch to voters that do not fetch; their first fetch acknowledges it."""
        replica = self._replica
        interval_ms = replica.settings.fetch_timeout_ms // 2
        voters = replica.voters.latest
        for voter_id in voters.ids:
            key = voters.key_of(voter_id)
            progress = self.progress.get(key)
            is_silent = progress is None or now - progress.fetched_at > interval_ms
            if voter_id != replica.node_id and is_silent:
                replica.send(voter_id, BeginEpoch(replica.state.epoch, replica.node_id, key))
        self._begin_at = now + interval_ms

    def _forget_idle(self, key: ReplicaKey, progress: Progress, now: int) -> None:
        replica = self._replica
        if now - progress.fetched_at > replica.settings.observer_idle_ms and key not in replica.voters.latest:
            del self.progress[key]

    # --- the end --------------------------------------------------------------------------------------------------

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most advanced first."""
        voters = self._replica.voters.latest
        keys = [voters.key_of(voter_id) for voter_id in voters.ids if voter_id != self._replica.node_id]
        return tuple(sorted(keys, key=lambda key: (-self._synced_end(key), key)))

    def close(self) -> None:
        """Refuses all waiting requests when leadership ends. The replica's state is already the new one."""
        replica = self._replica
        leader_id = replica.state.leader_id if replica.state.leader_id != replica.node_id else -1
        for progress in self.progress.values():
            if progress.held is not None:
                refusal = FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica.state.epoch, leader_id)
                replica.effects.append(Answer(progress.held.token, refusal))
        if self.change is not None:
            message = "The leader has changed before the change was committed; look at the voter set, then try again."
            self._answer_change(self.change, ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
