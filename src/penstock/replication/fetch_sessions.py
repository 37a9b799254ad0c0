"""Incremental fetch sessions (KIP-227): a reader names its partitions once, then only changes.

A session stores for each partition the last request (the leader epoch included, R28) and the last response; a partition
without news is left out of a response. A partition that returned records moves to the end of the order, so that none
starves behind a byte limit. A request continues a session only with the epoch that follows the last one.

Readers decide how many partitions a session holds, so sessions are bounded: in number, in partitions of all sessions
together, and for consumers in partitions of each session. A session holds few partitions that do not exist. A reader
that would exceed a bound is served without a session: it then names everything in each request, which is always
correct.

A follower's session may have thousands of partitions of which few change. Only those that may have news are read: those
that were requested again, and those that were marked since a read found no news.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.wire.hot.fetch import FetchedPartition
from penstock.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

SESSIONS_MAX = 1_000
"""Kafka: max.incremental.fetch.session.cache.slots."""

PARTITIONS_MAX = 200_000
"""Partitions of all sessions together; each takes about 400 bytes."""

CONSUMER_PARTITIONS_MAX = 2_000
"""Partitions of one consumer's session; each request examines all of them."""

UNKNOWN_MAX = 100
"""Partitions of a session that do not exist. They stay in it, so that they are reported once they exist."""

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)

EVICTION_MS = 120_000
"""A larger session may evict one that is older than this; any session may evict one that is idle for longer."""

NO_SESSION = 0
FIRST_EPOCH = 0
"""A full request that asks for a session."""
FINAL_EPOCH = -1
"""A full request without a session."""
_EPOCH_MAX = 2**31 - 1

Key: TypeAlias = tuple[str | bytes, int]
"""Topic (its name, or from version 13 on its id) and partition."""


class RequestedPartition:
    """One partition that a reader requests, and the state that it was last sent."""

    __slots__ = (
        "bytes_max",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start",
        "offset",
        "place",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(self, topic: str | bytes, asked: FetchPartition) -> None:
        self.topic = topic
        self.index = asked.partition
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.place: Any = None
        """Cache of the read path: where it last found the partition. Only the read path sets and validates it."""
        self.session: Session | None = None
        self.ask(asked)

    def ask(self, asked: FetchPartition) -> None:
        """Updates the partition from a new request."""
        self.offset = asked.fetch_offset
        self.bytes_max = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start = asked.log_start_offset

    def is_news(self, found: FetchedPartition) -> bool:
        """Whether the response must include the partition."""
        return bool(
            found.high_watermark != self.told_high_watermark
            or found.log_start_offset != self.told_log_start
            or found.records
            or found.error_code
            or found.diverging_epoch is not None
            or found.preferred_read_replica >= 0
        )

    def tell(self, found: FetchedPartition) -> None:
        """Stores what the response reports. After an error or a diverging epoch, the next response reports it again."""
        is_heard = not found.error_code and found.diverging_epoch is None
        self.told_high_watermark = found.high_watermark if is_heard else -1
        self.told_log_start = found.log_start_offset if is_heard else -1


class Session:
    """The partitions that one reader requests, in the order in which they are examined."""

    __slots__ = (
        "changes",
        "created_ms",
        "epoch",
        "has_ids",
        "id",
        "is_follower",
        "is_over",
        "number",
        "on_change",
        "requested",
        "unsettled",
        "used_ms",
    )

    def __init__(
        self,
        id_: int,
        number: int,
        requested: dict[Key, RequestedPartition],
        now_ms: int,
        *,
        has_ids: bool,
        is_follower: bool,
    ) -> None:
        self.id = id_
        self.number = number
        """Creation order: only the last session of a reader is alive, even if an earlier request comes late."""
        self.requested = requested
        self.has_ids = has_ids
        self.is_follower = is_follower
        self.is_over = False
        self.created_ms = self.used_ms = now_ms
        self.epoch = FIRST_EPOCH + 1
        self.unsettled: dict[RequestedPartition, None] = {}
        """A follower's partitions that may have news, in the order in which they are examined."""
        self.changes = 0
        """Counts changes with which a waiting request may be answered."""
        self.on_change: Callable[[], None] | None = None
        """Called on each such change, for the waiting request."""
        for each in requested.values():
            self.take(each)

    def take(self, requested: RequestedPartition) -> None:
        """Adds a partition, or marks it as requested again."""
        requested.session = self
        if self.is_follower:
            self.unsettled[requested] = None

    def forget(self, key: Key) -> None:
        """Removes a partition that the reader no longer requests."""
        requested = self.requested.pop(key, None)
        if requested is not None:
            requested.session = None
            self.unsettled.pop(requested, None)

    def mark(self, requested: RequestedPartition, *, wakes: bool) -> None:
        """Marks a partition that may have news; `wakes` if the news alone justifies a response."""
        self.unsettled[requested] = None
        if wakes:
            self.changes += 1
            if self.on_change is not None:
                self.on_change()

    def put_last(self, key: Key) -> None:
        """Moves a partition that returned records to the end of the order."""
        requested = self.requested[key] = self.requested.pop(key)
        if self.is_follower:
            self.unsettled.pop(requested, None)
            self.unsettled[requested] = None


class FetchResult(NamedTuple):
    """The content of a response."""

    session_id: int
    error_code: ErrorCode
    found: Sequence[tuple[RequestedPartition, FetchedPartition]]


class Fetching:
    """One request in progress: its partitions, and how its response becomes part of a session."""

    __slots__ = (
        "_becomes_session",
        "_epoch",
        "_requested",
        "_sessions",
        "error_code",
        "has_ids",
        "is_follower",
        "session",
    )

    def __init__(
        self,
        sessions: "FetchSessions",
        requested: dict[Key, RequestedPartition],
        *,
        session: Session | None = None,
        becomes_session: bool = False,
        has_ids: bool = False,
        is_follower: bool = False,
        error_code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self._sessions = sessions
        self._requested = requested
        self.session = session
        self._epoch = 0 if session is None else session.epoch
        self._becomes_session = becomes_session
        self.has_ids = has_ids
        self.is_follower = is_follower
        self.error_code = error_code

    def take(self, topic: str | bytes, asked: Iterable[FetchPartition]) -> None:
        """Adds partitions of a topic that the request names; of repeated entries for a partition the last counts."""
        requested, session = self._requested, self.session
        held = len(requested)
        for each in asked:
            key = (topic, each.partition)
            known = requested.get(key)
            if known is None:
                known = requested[key] = RequestedPartition(topic, each)
            else:
                known.ask(each)
            if session is not None:
                session.take(known)
        self._changed(held)

    def forget(self, topic: str | bytes, partitions: Iterable[int]) -> None:
        """Removes partitions of a topic from the request's session."""
        if self.session is not None:
            held = len(self._requested)
            for index in partitions:
                self.session.forget((topic, index))
            self._changed(held)

    def _changed(self, held: int) -> None:
        if self.session is not None and not self.session.is_over:
            self._sessions.partitions += len(self._requested) - held

    def leave_session(self) -> None:
        """Detaches the request from its session, which is empty and has ended."""
        self.session, self._requested = None, {}

    @property
    def size(self) -> int:
        """The number of partitions to examine."""
        return len(self._requested)

    @property
    def requested(self) -> Iterable[RequestedPartition]:
        """The partitions to examine, in this order."""
        return self._requested.values()

    def named(self, key: Key) -> RequestedPartition | None:
        """The request for a partition, if any."""
        return self._requested.get(key)

    @property
    def has_partitions(self) -> bool:
        """Whether there are partitions to examine."""
        return bool(self._requested)

    @property
    def is_incremental(self) -> bool:
        """Whether partitions without news may be left out."""
        return self.session is not None

    @property
    def marked_session(self) -> Session | None:
        """The session, if changed partitions are marked in it: a follower's."""
        return self.session if self.session is not None and self.session.is_follower else None

    @property
    def unsettled(self) -> Iterable[RequestedPartition]:
        """The partitions that may have news, in the order in which to examine them."""
        session = self.marked_session
        return self.requested if session is None else list(session.unsettled)

    def settle(self, requested: RequestedPartition) -> None:
        """Notes that a partition has no news; a later change marks it again."""
        session = self.marked_session
        if session is not None:
            session.unsettled.pop(requested, None)

    def answer(self, found: Sequence[tuple[RequestedPartition, FetchedPartition]], now_ms: int) -> FetchResult:
        """Builds the response. For an incremental request `found` may omit partitions known to have no news."""
        if self.session is not None:
            return self._answer_session(self.session, found)
        if not self._becomes_session:
            return FetchResult(NO_SESSION, ErrorCode.NONE, found)
        if _has_many_unknown(found):
            return FetchResult(NO_SESSION, ErrorCode.NONE, found)
        for requested, part in found:
            requested.tell(part)
        session_id = self._sessions.create(self._requested, now_ms, has_ids=self.has_ids, is_follower=self.is_follower)
        return FetchResult(session_id, ErrorCode.NONE, found)

    def _answer_session(
        self, session: Session, found: Sequence[tuple[RequestedPartition, FetchedPartition]]
    ) -> FetchResult:
        if session.epoch != self._epoch:  # the reader did not wait for this response: its state would be unknown
            return FetchResult(session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        news = []
        for each in found:
            requested, part = each
            if not requested.is_news(part):
                continue
            requested.tell(part)
            news.append(each)
            if part.records:
                session.put_last((requested.topic, requested.index))
        if _has_many_unknown(news):
            self._sessions.end(session.id)  # the next request is refused, and the reader names everything again
        return FetchResult(session.id, ErrorCode.NONE, news)


class FetchSessions:
    """All sessions of a node. When a bound is reached, a reader is served without one."""

    def __init__(
        self,
        entropy: Entropy,
        sessions_max: int = SESSIONS_MAX,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._entropy = entropy
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self.partitions = 0
        """Partitions of all sessions together."""
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        """Least recently used first."""
        self.evictions = 0
        self._made = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def begin(
        self,
        session_id: int,
        epoch: int,
        topics: Sequence[FetchTopic],
        forgotten: Sequence[ForgottenTopic],
        now_ms: int,
        *,
        has_ids: bool,
        is_follower: bool = False,
    ) -> Fetching:
        """Begins a request with everything that it names. If `error_code` is set there is nothing to fetch."""
        fetching = self.open(session_id, epoch, now_ms, has_ids=has_ids, is_follower=is_follower)
        if not fetching.error_code:
            for topic in topics:
                fetching.take(topic.topic_id if has_ids else topic.topic, topic.partitions)
            for gone in forgotten:
                fetching.forget(gone.topic_id if has_ids else gone.topic, gone.partitions)
            self.settle(fetching)
        return fetching

    def open(self, session_id: int, epoch: int, now_ms: int, *, has_ids: bool, is_follower: bool = False) -> Fetching:
        """Begins a request.

        The partitions that it names are passed to `Fetching.take` and `forget`, maybe in pieces; then `settle` ends it.
        """
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self.end(session_id)  # a full request ends the session that it names
            is_first = epoch == FIRST_EPOCH
            return Fetching(self, {}, becomes_session=is_first, has_ids=has_ids, is_follower=is_follower)
        session = self._sessions.get(session_id)
        if session is None:
            return Fetching(self, {}, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Fetching(self, {}, error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.has_ids != has_ids:
            return Fetching(self, {}, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.used_ms = now_ms
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        self._sessions.move_to_end(session_id)
        return Fetching(self, session.requested, session=session, has_ids=has_ids)

    def settle(self, fetching: Fetching) -> None:
        """Called when everything that a request names was added; ends its session if it is empty or too large."""
        session = fetching.session
        if session is None or session.is_over:
            return
        if not session.requested:
            self.end(session.id)
            fetching.leave_session()
        elif not self._has_room(session):
            self.end(session.id)
            fetching.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def _has_room(self, session: Session) -> bool:
        """Whether a session that has grown may stay; a follower's session evicts those of consumers."""
        if session.is_follower:
            return self._make_room(0, session)
        return len(session.requested) <= CONSUMER_PARTITIONS_MAX and self.partitions <= self._partitions_max

    def _make_room(self, size: int, keeps: Session | None = None) -> bool:
        """Ends consumers' sessions, least recently used first, until a follower's fits."""
        while self.partitions + size > self._partitions_max:
            victim = next((each for each in self._sessions.values() if not each.is_follower), None)
            if victim is None or victim is keeps:
                return False
            self.end(victim.id)
            self.evictions += 1
        return True

    def create(self, requested: dict[Key, RequestedPartition], now_ms: int, *, has_ids: bool, is_follower: bool) -> int:
        """Creates a session and returns its id; NO_SESSION if it would be empty or exceed a bound."""
        if not requested or (not is_follower and len(requested) > CONSUMER_PARTITIONS_MAX):
            return NO_SESSION
        if is_follower:
            if not self._make_room(len(requested)):
                return NO_SESSION
        elif self.partitions + len(requested) > self._partitions_max:
            return NO_SESSION
        if len(self._sessions) >= self._sessions_max and not self._evict(
            len(requested), now_ms, is_follower=is_follower
        ):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._entropy.below(_EPOCH_MAX - 1)
        self._made += 1
        self.partitions += len(requested)
        self._sessions[session_id] = Session(
            session_id, self._made, requested, now_ms, has_ids=has_ids, is_follower=is_follower
        )
        return session_id

    def _evict(self, size: int, now_ms: int, *, is_follower: bool) -> bool:
        """Evicts a session: a stale one first, then the least valuable (followers over consumers, large over small)."""
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.used_ms <= self._eviction_ms:
            open_to_all_ms = now_ms - self._eviction_ms
            at_risk = [
                session
                for session in self._sessions.values()
                if session.created_ms < open_to_all_ms or (is_follower and not session.is_follower)
            ]
            if not at_risk:
                return False
            victim = min(at_risk, key=_worth)
            if (is_follower, size, 0) < _worth(victim):
                return False
        self.end(victim.id)
        self.evictions += 1
        return True

    def end(self, session_id: int) -> None:
        """Ends a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over = True
            self.partitions -= len(session.requested)


def _worth(session: Session) -> tuple[bool, int, int]:
    return session.is_follower, len(session.requested), session.id


def _has_many_unknown(found: Sequence[tuple[RequestedPartition, FetchedPartition]]) -> bool:
    return len(found) > UNKNOWN_MAX and sum(part.error_code in UNKNOWN for _, part in found) > UNKNOWN_MAX
