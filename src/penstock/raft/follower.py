"""Follower: fetches records or a snapshot from the leader, and truncates records that the leader does not have.

Invariants: a fetch is sent only when everything before its offset is synced, because it acknowledges that; one request
is in flight at a time, and only its reply counts; nothing below the high watermark is ever truncated (KAFKA-12460), and
the leader's high watermark is adopted only along with records that fit (KAFKA-14704). Observers do the same, and query
voters if they know no leader.
"""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.raft import reports
from penstock.raft.effects import CutLog, InstallSnapshot
from penstock.raft.messages import NO_LEADER, Fetch, FetchReply, FetchSnapshot, FetchSnapshotReply
from penstock.raft.ports import EpochEnd, SnapshotId
from penstock.raft.replica import Inconsistent, Replica
from penstock.raft.replicas import ReplicaKey


class Follower:
    """A follower of one leader, or an observer, which may have none."""

    __slots__ = (
        "_awaited",
        "_failures",
        "_is_syncing",
        "_position",
        "_replica",
        "_resend_at",
        "_snapshot",
        "give_up_at",
        "heard_ms",
        "loyal_until",
    )

    def __init__(self, replica: Replica, now: int, patience_ms: int | None = None) -> None:
        self._replica = replica
        self._awaited = 0
        self._failures = 0
        self._is_syncing = False
        self._resend_at = now
        self._snapshot: SnapshotId | None = None
        self._position = 0
        self.heard_ms = now
        """When its leader last replied, or it began to follow."""
        self.loyal_until = now
        """Until then it grants no pre-votes, as its leader is alive (KIP-996)."""
        self.give_up_at = 0
        """When it gives up its leader if no reply arrives."""
        self._have_patience(now, replica.settings.fetch_timeout_ms if patience_ms is None else patience_ms)

    @property
    def wake_at(self) -> int:
        """When the next action is due: resending a request, or giving up the leader."""
        return min(self._resend_at, self.give_up_at)

    def _have_patience(self, now: int, wait_ms: int) -> None:
        """Waits `wait_ms` plus up to a quarter at random; by then the other followers grant pre-votes."""
        self.give_up_at = now + wait_ms + self._replica.entropy.below(wait_ms // 4)

    # --- requests -------------------------------------------------------------------------------------------------

    def go_on(self, now: int) -> None:
        """Sends the next fetch, once the log is synced and not being rebuilt."""
        replica = self._replica
        log = replica.log
        if replica.is_rebuilding or self._is_syncing:
            self._resend_at = self.give_up_at
            return
        if log.synced_end < log.end_offset:
            self._is_syncing = True
            self._resend_at = self.give_up_at
            replica.sync()
            return
        to = self._whom_to_ask(now)
        if to == NO_LEADER:
            self._resend_at = now + replica.settings.request_timeout_ms
            return
        settings, epoch = replica.settings, replica.state.epoch
        if self._snapshot is not None:
            chunk_bytes = settings.snapshot_chunk_bytes_max
            piece = FetchSnapshot(epoch, replica.key, self._snapshot, self._position, chunk_bytes)
            self._awaited = replica.send(to, piece)
        else:
            self._awaited = replica.send(
                to,
                Fetch(
                    epoch,
                    replica.key,
                    log.end_offset,
                    log.last_epoch,
                    replica.high_watermark,
                    settings.fetch_wait_ms,
                    settings.fetch_bytes_max,
                ),
            )
        self._resend_at = now + settings.request_timeout_ms

    def _whom_to_ask(self, now: int) -> int:
        """The leader; for an observer without a leader, or with a silent one, any voter, which may know it."""
        replica = self._replica
        if replica.has_leader and (replica.is_voter or now < self.give_up_at):
            return replica.state.leader_id
        others = [voter_id for voter_id in replica.voters.latest.ids if voter_id != replica.node_id]
        return others[replica.entropy.below(len(others))] if others else NO_LEADER

    def on_time(self, now: int) -> bool:
        """Resends a lost request; False if a voter's leader has been silent for too long."""
        replica = self._replica
        if now >= self.give_up_at:
            if replica.is_voter:
                return False
            self.go_on(now)  # an observer queries any voter, and waits again
            self._have_patience(now, replica.settings.fetch_timeout_ms)
        elif now >= self._resend_at:
            self.go_on(now)
        return True

    def on_synced(self, now: int) -> None:
        """Continues fetching once the log is synced."""
        if self._is_syncing:
            self._is_syncing = False
            self.go_on(now)

    def hurry(self, now: int) -> None:
        """The leader is probably gone: shortens the wait for it, and allows pre-votes."""
        self.loyal_until = now
        wait_ms = self._replica.entropy.below(self._replica.settings.election_timeout_ms // 4)
        self.give_up_at = min(self.give_up_at, now + wait_ms)

    def step_forward(self, successors: Sequence[ReplicaKey], now: int) -> None:
        """The leader has resigned: its first successor campaigns at once, the others later, in order."""
        self.loyal_until = now
        replica = self._replica
        if replica.key in successors:
            wait_ms = successors.index(replica.key) * replica.settings.election_timeout_ms // 4
            self.give_up_at = min(self.give_up_at, now + wait_ms)

    def on_unanswered(self, number: int, now: int) -> None:
        """The connection broke. One may break by chance; two in a row indicate a dead peer."""
        if number == self._awaited:
            self._awaited = 0
            self._failures += 1
            self._resend_at = now + self._replica.settings.retry_backoff_ms
            if self._failures >= 2:
                self.hurry(now)

    # --- replies --------------------------------------------------------------------------------------------------

    def on_reply(self, number: int, reply: FetchReply | FetchSnapshotReply, now: int) -> bool:
        """Handles the reply to the in-flight request, and ignores others. Returns whether its leader replied."""
        if number != self._awaited:
            return False
        self._awaited = 0
        replica = self._replica
        if reply.error is not ErrorCode.NONE or reply.epoch != replica.state.epoch:
            self._snapshot = None
            self._resend_at = now + replica.settings.retry_backoff_ms
            if reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and replica.is_voter:
                self.hurry(now)  # a voter fetches only from its leader, which has resigned
            return False
        self._failures = 0
        self.heard_ms = now
        self.loyal_until = now + replica.settings.fetch_timeout_ms
        self._have_patience(now, replica.settings.fetch_timeout_ms)
        if isinstance(reply, FetchSnapshotReply):
            self._take_piece(reply)
        elif reply.diverging is not None:
            self._cut(reply.diverging)
        elif reply.snapshot is not None:
            self._take_snapshot(reply.snapshot)
        else:
            self._take_records(reply, now)
        self.go_on(now)
        return True

    def _take_records(self, reply: FetchReply, now: int) -> None:
        replica = self._replica
        if reply.records:
            for found in replica.log.append_fetched(reply.records, now):
                replica.learn_voters(found)
        replica.raise_high_watermark(min(reply.high_watermark, replica.log.end_offset))

    def _cut(self, leaders: EpochEnd) -> None:
        """Truncates to the last offset that both logs may share (KIP-101, KIP-279)."""
        replica = self._replica
        own = replica.log.end_of_epoch(leaders.epoch)
        end_offset = min(own.end_offset, leaders.end_offset) if own.epoch == leaders.epoch else own.end_offset
        if end_offset < replica.high_watermark:
            raise Inconsistent(
                f"the leader of epoch {replica.state.epoch} wants offset {end_offset} cut, "
                f"but everything before {replica.high_watermark} is committed"
            )
        replica.is_rebuilding = True
        replica.voters.cut_end(end_offset)
        was, epoch = replica.log.end_offset, replica.state.epoch
        replica.effects.append(reports.LOG_CUT(end_offset=end_offset, was=was, epoch=epoch))
        replica.effects.append(CutLog(end_offset))

    def _take_snapshot(self, snapshot: SnapshotId) -> None:
        high_watermark = self._replica.high_watermark
        if snapshot.end_offset < high_watermark:
            raise Inconsistent(f"the leader's {snapshot} ends before {high_watermark}, which is committed")
        self._snapshot, self._position = snapshot, 0

    def _take_piece(self, reply: FetchSnapshotReply) -> None:
        replica = self._replica
        if reply.snapshot != self._snapshot or reply.position != self._position:
            self._snapshot = None
            return
        assert self._snapshot is not None
        self._position = replica.snapshots.receive(self._snapshot, self._position, reply.data)
        if self._position >= reply.size_bytes:
            replica.is_rebuilding = True
            replica.effects.append(InstallSnapshot(self._snapshot))
            self._snapshot = None
