"""Incremental fetch sessions (KIP-227): a reader names its partitions once, then only what changes.

A session remembers per partition what was asked last (the leader epoch included, R28) and what was told last; a
partition without news is left out of an answer. A partition that gave records goes to the end of the line, so that none
starves behind a byte limit. A request continues a session only with the epoch that follows the last one.

A follower's session may have thousands of partitions of which few change. Whoever reads for it is told which may have
news: those that were asked for anew, and those that were marked since it was found that they have none.
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

EVICTION_MS = 120_000
"""A session is safe from a larger one for this long, and from anybody's while it was used within it."""

NO_SESSION = 0
FIRST_EPOCH = 0
"""A full request that would like a session."""
FINAL_EPOCH = -1
"""A full request that wants none."""
_EPOCH_MAX = 2**31 - 1

Key: TypeAlias = tuple[str | bytes, int]
"""Topic (its name, or from version 13 on its id) and partition."""


class Wanted:
    """One partition that a reader wants, and what it was told of it last."""

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
        """Where whoever reads found it last: theirs to set and to trust."""
        self.session: Session | None = None
        self.ask(asked)

    def ask(self, asked: FetchPartition) -> None:
        """The reader asks for something else from now on."""
        self.offset = asked.fetch_offset
        self.bytes_max = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start = asked.log_start_offset

    def is_news(self, found: FetchedPartition) -> bool:
        """Whether the reader must be told."""
        return bool(
            found.high_watermark != self.told_high_watermark
            or found.log_start_offset != self.told_log_start
            or found.records
            or found.error_code
            or found.diverging_epoch is not None
            or found.preferred_read_replica >= 0
        )

    def tell(self, found: FetchedPartition) -> None:
        """The reader is being told. After an error everything is news again."""
        self.told_high_watermark = -1 if found.error_code else found.high_watermark
        self.told_log_start = found.log_start_offset


class Session:
    """What one reader wants, in the order in which it is looked at."""

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
        "unsettled",
        "used_ms",
        "wanted",
    )

    def __init__(
        self, id_: int, number: int, wanted: dict[Key, Wanted], now_ms: int, *, has_ids: bool, is_follower: bool
    ) -> None:
        self.id = id_
        self.number = number
        """In the order in which they were made: of one reader only the last is alive, whatever comes late."""
        self.wanted = wanted
        self.has_ids = has_ids
        self.is_follower = is_follower
        self.is_over = False
        self.created_ms = self.used_ms = now_ms
        self.epoch = FIRST_EPOCH + 1
        self.unsettled: dict[Wanted, None] = {}
        """Of a follower, what may have news, in the order in which it is looked at."""
        self.changes = 0
        """How often there was something that a waiting request may be answered with."""
        self.on_change: Callable[[], None] | None = None
        """Who waits for that."""
        for each in wanted.values():
            self.take(each)

    def take(self, wanted: Wanted) -> None:
        """Something was asked for, anew or for the first time."""
        wanted.session = self
        if self.is_follower:
            self.unsettled[wanted] = None

    def forget(self, key: Key) -> None:
        """Somebody is not interested any more."""
        wanted = self.wanted.pop(key, None)
        if wanted is not None:
            wanted.session = None
            self.unsettled.pop(wanted, None)

    def mark(self, wanted: Wanted, *, wakes: bool) -> None:
        """There may be news of a partition; `wakes` if they are worth an answer by themselves."""
        self.unsettled[wanted] = None
        if wakes:
            self.changes += 1
            if self.on_change is not None:
                self.on_change()

    def put_last(self, key: Key) -> None:
        """A partition gave records: others come first now."""
        wanted = self.wanted[key] = self.wanted.pop(key)
        if self.is_follower:
            self.unsettled.pop(wanted, None)
            self.unsettled[wanted] = None


class Told(NamedTuple):
    """What an answer says."""

    session_id: int
    error_code: ErrorCode
    found: Sequence[tuple[Wanted, FetchedPartition]]


class Fetching:
    """One request under way: what it wants, and how its answer becomes part of a session."""

    __slots__ = (
        "_becomes_session",
        "_epoch",
        "_session",
        "_sessions",
        "_wanted",
        "error_code",
        "has_ids",
        "is_follower",
    )

    def __init__(
        self,
        sessions: "FetchSessions",
        wanted: dict[Key, Wanted],
        *,
        session: Session | None = None,
        becomes_session: bool = False,
        has_ids: bool = False,
        is_follower: bool = False,
        error_code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self._sessions = sessions
        self._wanted = wanted
        self._session = session
        self._epoch = 0 if session is None else session.epoch
        self._becomes_session = becomes_session
        self.has_ids = has_ids
        self.is_follower = is_follower
        self.error_code = error_code

    @property
    def wanted(self) -> Iterable[Wanted]:
        """What to look at, in this order."""
        return self._wanted.values()

    def named(self, key: Key) -> Wanted | None:
        """What is wanted of a partition."""
        return self._wanted.get(key)

    @property
    def has_wanted(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self._wanted)

    @property
    def is_incremental(self) -> bool:
        """Whether partitions without news may be left out."""
        return self._session is not None

    @property
    def marked_session(self) -> Session | None:
        """The session, if whoever changes partitions marks them in it: a follower's."""
        return self._session if self._session is not None and self._session.is_follower else None

    @property
    def unsettled(self) -> Iterable[Wanted]:
        """What may have news, in the order in which to look at it."""
        session = self.marked_session
        return self.wanted if session is None else list(session.unsettled)

    def settle(self, wanted: Wanted) -> None:
        """There is no news of a partition, and whoever changes it marks it."""
        session = self.marked_session
        if session is not None:
            session.unsettled.pop(wanted, None)

    def answer(self, found: Sequence[tuple[Wanted, FetchedPartition]], now_ms: int) -> Told:
        """What is told of what was found. An incremental request may leave out what it knows to be no news."""
        if self._session is not None:
            return self._answer_session(self._session, found)
        if not self._becomes_session:
            return Told(NO_SESSION, ErrorCode.NONE, found)
        for wanted, part in found:
            wanted.tell(part)
        session_id = self._sessions.create(self._wanted, now_ms, has_ids=self.has_ids, is_follower=self.is_follower)
        return Told(session_id, ErrorCode.NONE, found)

    def _answer_session(self, session: Session, found: Sequence[tuple[Wanted, FetchedPartition]]) -> Told:
        if session.epoch != self._epoch:  # the reader did not wait for this answer: it cannot know what it says
            return Told(session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        told = []
        for each in found:
            wanted, part = each
            if not wanted.is_news(part):
                continue
            wanted.tell(part)
            told.append(each)
            if part.records:
                session.put_last((wanted.topic, wanted.index))
        return Told(session.id, ErrorCode.NONE, told)


class FetchSessions:
    """All sessions of a node. When there is no room, a reader is served without one."""

    def __init__(self, entropy: Entropy, sessions_max: int = SESSIONS_MAX, eviction_ms: int = EVICTION_MS) -> None:
        self._entropy = entropy
        self._sessions_max = sessions_max
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        """The one that was not used for longest comes first."""
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
        """Takes a request. If `error_code` is set there is nothing to fetch."""
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            self._end(session_id)  # a full request ends the session that it names
            return Fetching(
                self,
                _take({}, topics, has_ids=has_ids),
                becomes_session=epoch == FIRST_EPOCH,
                has_ids=has_ids,
                is_follower=is_follower,
            )
        session = self._sessions.get(session_id)
        if session is None:
            return Fetching(self, {}, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Fetching(self, {}, error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.has_ids != has_ids:
            return Fetching(self, {}, error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        _take(session.wanted, topics, has_ids=has_ids, session=session)
        for topic in forgotten:
            name = topic.topic_id if has_ids else topic.topic
            for index in topic.partitions:
                session.forget((name, index))
        if not session.wanted:
            self._end(session_id)
            return Fetching(self, {})
        session.used_ms = now_ms
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        self._sessions.move_to_end(session_id)
        return Fetching(self, session.wanted, session=session, has_ids=has_ids)

    def create(self, wanted: dict[Key, Wanted], now_ms: int, *, has_ids: bool, is_follower: bool) -> int:
        """A new session's id; NO_SESSION when there is nothing to remember or no room to do it."""
        if not wanted:
            return NO_SESSION
        if len(self._sessions) >= self._sessions_max and not self._evict(len(wanted), now_ms, is_follower=is_follower):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._entropy.below(_EPOCH_MAX - 1)
        self._made += 1
        self._sessions[session_id] = Session(
            session_id, self._made, wanted, now_ms, has_ids=has_ids, is_follower=is_follower
        )
        return session_id

    def _evict(self, size: int, now_ms: int, *, is_follower: bool) -> bool:
        """Makes room: first what is stale, then what is worth less (followers over consumers, large over small)."""
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
        self._end(victim.id)
        self.evictions += 1
        return True

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over = True


def _worth(session: Session) -> tuple[bool, int, int]:
    return session.is_follower, len(session.wanted), session.id


def _take(
    wanted: dict[Key, Wanted], topics: Sequence[FetchTopic], *, has_ids: bool, session: Session | None = None
) -> dict[Key, Wanted]:
    for topic in topics:
        name = topic.topic_id if has_ids else topic.topic
        for asked in topic.partitions:
            key = (name, asked.partition)
            known = wanted.get(key)
            if known is None:
                known = wanted[key] = Wanted(name, asked)
            else:
                known.ask(asked)
            if session is not None:
                session.take(known)
    return wanted
