"""Fetches from one source: all partitions that this broker follows there, in one session, one request at a time.

Invariants: only the response to the in-flight request counts; no request is sent while records that it would
acknowledge are being synced; a refused partition backs off alone and delays no other. While nothing changes, a request
names no partitions and costs nothing per partition.
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
    """Fetches from one broker. See the module."""

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
        """When the in-flight request counts as lost; without one, when the next may be sent."""
        self._unsynced: dict[Key, None] = {}
        self._trimming: dict[Key, None] = {}
        """Partitions whose log start is about to move: the leader may wait for the report of it."""
        self._losses = 0
        """Consecutive requests without a response."""
        self._resting: list[tuple[int, int, Following]] = []
        """A heap of partitions that back off: the end of the back-off, and the order in which it began."""
        self._rests = 0
        self._is_idle = False
        """Whether there was nothing to fetch; cleared when a partition is marked."""

    def __contains__(self, key: Key) -> bool:
        return key in self._following

    def __len__(self) -> int:
        return len(self._following)

    def get(self, key: Key) -> Following | None:
        """The state of a partition that is fetched here."""
        return self._following.get(key)

    # --- partitions -----------------------------------------------------------------------------------------------

    def add(self, following: Following) -> None:
        """Starts to fetch a partition."""
        self._following[following.key] = following
        self._mark(following.key)
        self._wait_for_sync(following)

    def remove(self, key: Key) -> None:
        """Stops fetching a partition."""
        del self._following[key]
        self._unsynced.pop(key, None)
        self._trimming.pop(key, None)
        self._mark(key)

    def park(self, key: Key, *, is_parked: bool) -> None:
        """Pauses or resumes a partition that is being moved here."""
        following = self._following[key]
        if following.is_parked != is_parked:
            following.is_parked = is_parked
            self._mark(key)

    def on_cut(self, key: Key) -> None:
        """Resumes a partition whose truncation is done."""
        following = self._following[key]
        if following.pace is Pace.CUTTING:
            following.move(Pace.FETCHING)
            self._mark(key)

    def on_trimmed(self, key: Key) -> None:
        """Handles a moved log start, which the next request reports."""
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
        """Handles a finished sync; requests no longer wait for the log if all of it is durable."""
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

    # --- requests -------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int:
        """When the next action is due."""
        rest_until = self._resting[0][0] if self._resting else NEVER
        if self._awaited:
            return min(self._due_ms, rest_until)
        if self._unsynced or self._is_idle:
            return rest_until
        return min(self._due_ms, rest_until)

    def go_on(self, now: int) -> None:
        """Sends the next request, if none is in flight and no sync is awaited."""
        self._wake_resting(now)
        if self._awaited:
            if now < self._due_ms:
                return
            self.on_lost(self._awaited, now)
        if self._unsynced or self._is_idle or now < self._due_ms:
            return
        request_data = self._session.ask(self._wanted())
        if not self._session.told and not request_data.forgotten:
            self._is_idle = True  # all back off or are parked, or there are none
            return
        self._last_number += 1
        self._awaited = self._last_number
        self._due_ms = now + self.settings.request_timeout_ms
        broker_id, broker_epoch = self._me
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
            max_wait_ms=0
            if request_data.has_more
            else min(self.settings.fetch_wait_ms, TRIM_WAIT_MS if self._trimming else NEVER),
            min_bytes=self.settings.fetch_bytes_min,
            max_bytes=self.settings.fetch_bytes_max,
            session_id=request_data.session_id,
            session_epoch=request_data.epoch,
            topics=request_data.topics,
            forgotten_topics_data=request_data.forgotten,
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

    # --- responses ------------------------------------------------------------------------------------------------

    def on_lost(self, number: int, now: int) -> None:
        """Handles the loss of the in-flight request."""
        if number == self._awaited:
            self._awaited = 0
            self._session.lost()
            self._due_ms = now + self.settings.rest_ms(self._losses)
            self._losses += 1

    def on_answer(self, event: FetchAnswered, now: int) -> None:
        """Handles the response to the in-flight request; any other is too late."""
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
