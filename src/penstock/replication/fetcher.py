"""Fetching from one source: all partitions that this broker follows there, in one session, one request at a time.

Invariants: only the answer to the request under way counts; no request leaves while what it would acknowledge is on its
way to the disk; what is refused rests by itself and holds up nobody. While nothing happens a request names nothing, and
costs nothing per partition.
"""

from heapq import heappop, heappush
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.replication.effects import Effect, SendFetch, SyncLog
from penstock.replication.events import FetchAnswered
from penstock.replication.follower import Following, Pace
from penstock.replication.ports import Key
from penstock.replication.settings import TRIM_WAIT_MS, ReplicationSettings
from penstock.replication.source_session import SourceSession
from penstock.replication.throttle import Throttle
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, ReplicaState

NEVER: Final = 1 << 62


class Fetcher:
    """What is fetched from one broker."""

    def __init__(
        self, me: tuple[int, int], source: int, settings: ReplicationSettings, throttle: Throttle, effects: list[Effect]
    ) -> None:
        self._me = me
        self.source = source
        self.settings = settings
        self._throttle = throttle
        self._effects = effects
        self._following: dict[Key, Following] = {}
        self._session = SourceSession()
        self._awaited = 0
        self._last_number = 0
        self._due_ms = 0
        """When the request under way counts as lost, or without one when the next may leave."""
        self._unsynced: dict[Key, None] = {}
        self._trimming: dict[Key, None] = {}
        """Partitions whose log start is about to move: the leader may wait to hear of it."""
        self._losses = 0
        """Requests in a row that had no answer."""
        self._resting: list[tuple[int, int, Following]] = []
        """A heap: when they may go on, and in which order they began to rest."""
        self._rests = 0
        self._is_idle = False
        """Whether there was nothing to ask for; there is again when something is marked."""

    def __contains__(self, key: Key) -> bool:
        return key in self._following

    def __len__(self) -> int:
        return len(self._following)

    def get(self, key: Key) -> Following | None:
        """What is known of a partition that is fetched here."""
        return self._following.get(key)

    # --- what is fetched ------------------------------------------------------------------------------------------

    def add(self, following: Following) -> None:
        """A partition is fetched from here from now on."""
        self._following[following.key] = following
        self._mark(following.key)
        self._wait_for_sync(following)

    def remove(self, key: Key) -> None:
        """A partition is fetched from here no longer."""
        del self._following[key]
        self._unsynced.pop(key, None)
        self._trimming.pop(key, None)
        self._mark(key)

    def park(self, key: Key, *, is_parked: bool) -> None:
        """A partition that is being moved here has to wait, or no longer."""
        following = self._following[key]
        if following.is_parked != is_parked:
            following.is_parked = is_parked
            self._mark(key)

    def on_cut(self, key: Key) -> None:
        """A log ends where it was to be cut."""
        following = self._following[key]
        if following.pace is Pace.CUTTING:
            following.move(Pace.FETCHING)
            self._mark(key)

    def on_trimmed(self, key: Key) -> None:
        """A log start has moved, which the next request reports."""
        following = self._following[key]
        following.trimmed(self._effects)
        self._note_trimming(following)
        self._mark(key)

    def _note_trimming(self, following: Following) -> None:
        if following.is_trimming:
            self._trimming[following.key] = None
        else:
            self._trimming.pop(following.key, None)

    def on_synced(self, key: Key) -> None:
        """A log is durable up to where it was when that was asked for."""
        following = self._following.get(key)
        if following is not None and following.is_durable:
            self._unsynced.pop(key, None)

    def _mark(self, key: Key) -> None:
        self._session.mark(key)
        self._is_idle = False

    def _wait_for_sync(self, following: Following) -> None:
        if not following.is_durable and following.key not in self._unsynced:
            self._unsynced[following.key] = None
            self._effects.append(SyncLog(following.key))

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int:
        """When something is due."""
        rest_until = self._resting[0][0] if self._resting else NEVER
        if self._awaited:
            return min(self._due_ms, rest_until)
        if self._unsynced or self._is_idle:
            return rest_until
        return min(self._due_ms, rest_until)

    def go_on(self, now: int) -> None:
        """Asks for what comes next, once everything is in its place."""
        self._wake_resting(now)
        if self._awaited:
            if now < self._due_ms:
                return
            self.on_lost(self._awaited, now)
        if self._unsynced or self._is_idle or now < self._due_ms:
            return
        asking = self._session.ask(self._wanted())
        if not self._session.told and not asking.forgotten:
            self._is_idle = True  # all rest, or wait for their turn, or there are none
            return
        self._last_number += 1
        self._awaited = self._last_number
        self._due_ms = now + self.settings.request_timeout_ms
        broker_id, broker_epoch = self._me
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
            max_wait_ms=0
            if asking.has_more
            else min(self.settings.fetch_wait_ms, TRIM_WAIT_MS if self._trimming else NEVER),
            min_bytes=self.settings.fetch_bytes_min,
            max_bytes=self.settings.fetch_bytes_max,
            session_id=asking.session_id,
            session_epoch=asking.epoch,
            topics=asking.topics,
            forgotten_topics_data=asking.forgotten,
        )
        self._effects.append(SendFetch(self.source, self._awaited, request))

    def _wanted(self) -> dict[Key, FetchPartition | None]:
        keys = self._session.marked if self._session.is_incremental else list(self._following)
        bytes_max = self.settings.partition_bytes_max
        wanted: dict[Key, FetchPartition | None] = {}
        for key in keys:
            following = self._following.get(key)
            wanted[key] = None if following is None else following.wanted(bytes_max)
        return wanted

    def _wake_resting(self, now: int) -> None:
        while self._resting and self._resting[0][0] <= now:
            _, _, following = heappop(self._resting)
            if following.pace is Pace.RESTING:
                following.move(Pace.FETCHING)
                self._mark(following.key)

    # --- answers --------------------------------------------------------------------------------------------------

    def on_lost(self, number: int, now: int) -> None:
        """The request under way has no answer."""
        if number == self._awaited:
            self._awaited = 0
            self._session.lost()
            self._due_ms = now + self.settings.rest_ms(self._losses)
            self._losses += 1

    def on_answer(self, event: FetchAnswered, now: int) -> None:
        """Takes the answer to the request under way; any other is too late."""
        if event.number != self._awaited:
            return
        response = event.response
        self._awaited = 0
        self._losses = 0
        self._due_ms = now
        if not self._session.answered(response.error_code, response.session_id):
            if response.error_code not in _SESSION_ERRORS:
                self._due_ms = now + self.settings.backoff_ms
            return
        told = self._session.told
        for topic in response.responses:
            for found in topic.partitions:
                key = (topic.topic_id, found.partition_index)
                following, asked = self._following.get(key), told.get(key)
                if following is None or asked is None:
                    continue
                if found.error_code is not ErrorCode.NONE:
                    self._session.refused(key)
                if not following.take(asked, found, event.wall_ms, self._effects):
                    self._rest(following, now)
                else:
                    following.refusals = 0
                    if found.records and following.is_arriving:
                        self._throttle.take(len(found.records), now)
                if following.is_trimming:
                    self._trimming[key] = None
                self._wait_for_sync(following)
                self._mark(key)

    def _rest(self, following: Following, now: int) -> None:
        following.move(Pace.RESTING)
        self._rests += 1
        heappush(self._resting, (now + self.settings.rest_ms(following.refusals), self._rests, following))
        following.refusals += 1


_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
