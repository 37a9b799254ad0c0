"""Incremental fetch sessions (KIP-227): a reader names its partitions once, then only what changes.

A session remembers per partition what was asked last (the leader epoch included, R28) and what was told last; a
partition without news is left out of an answer. A partition that gave records goes to the end of the line, so that none
starves behind a byte limit. A request continues a session only with the epoch that follows the last one.

Sessions hold what a reader named, so they are bounded: in number, in partitions of all of them together, and for
consumers in partitions of each. A session holds few partitions that do not exist. A reader that would need more is
served without a session: it then names everything in each request, which is always right.

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

PARTITIONS_MAX = 200_000
"""Of all sessions together; each takes about 400 bytes."""

CONSUMER_PARTITIONS_MAX = 2_000
"""Of a consumer's session, all of which are looked at for each request."""

UNKNOWN_MAX = 100
"""Partitions of a session that do not exist. They stay in it, so that they are told of once they do."""

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)

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
        """Remembers what the response says. After an error or an order to truncate, the next one says it again."""
        is_heard = not found.error_code and found.diverging_epoch is None
        self.told_high_watermark = found.high_watermark if is_heard else -1
        self.told_log_start = found.log_start_offset if is_heard else -1


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
        "_sessions",
        "_wanted",
        "error_code",
        "has_ids",
        "is_follower",
        "session",
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
        self.session = session
        self._epoch = 0 if session is None else session.epoch
        self._becomes_session = becomes_session
        self.has_ids = has_ids
        self.is_follower = is_follower
        self.error_code = error_code

    def take(self, topic: str | bytes, asked: Iterable[FetchPartition]) -> None:
        """The request names partitions of a topic; of one that is named several times, what is asked last counts."""
        wanted, session = self._wanted, self.session
        held = len(wanted)
        for each in asked:
            key = (topic, each.partition)
            known = wanted.get(key)
            if known is None:
                known = wanted[key] = Wanted(topic, each)
            else:
                known.ask(each)
            if session is not None:
                session.take(known)
        self._changed(held)

    def forget(self, topic: str | bytes, partitions: Iterable[int]) -> None:
        """The request names partitions that its session is to forget."""
        if self.session is not None:
            held = len(self._wanted)
            for index in partitions:
                self.session.forget((topic, index))
            self._changed(held)

    def _changed(self, held: int) -> None:
        if self.session is not None and not self.session.is_over:
            self._sessions.partitions += len(self._wanted) - held

    def leave_session(self) -> None:
        """The session has nothing left to remember, and is over."""
        self.session, self._wanted = None, {}

    @property
    def size(self) -> int:
        """How many partitions there are to look at."""
        return len(self._wanted)

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
        return self.session is not None

    @property
    def marked_session(self) -> Session | None:
        """The session, if whoever changes partitions marks them in it: a follower's."""
        return self.session if self.session is not None and self.session.is_follower else None

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
        if self.session is not None:
            return self._answer_session(self.session, found)
        if not self._becomes_session:
            return Told(NO_SESSION, ErrorCode.NONE, found)
        if _has_many_unknown(found):
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
        if _has_many_unknown(told):
            self._sessions.end(session.id)  # the next request learns of it, and names everything anew
        return Told(session.id, ErrorCode.NONE, told)


class FetchSessions:
    """All sessions of a node. When there is no room, a reader is served without one."""

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
        """Of all sessions together."""
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
        fetching = self.open(session_id, epoch, now_ms, has_ids=has_ids, is_follower=is_follower)
        if not fetching.error_code:
            for topic in topics:
                fetching.take(topic.topic_id if has_ids else topic.topic, topic.partitions)
            for gone in forgotten:
                fetching.forget(gone.topic_id if has_ids else gone.topic, gone.partitions)
            self.settle(fetching)
        return fetching

    def open(self, session_id: int, epoch: int, now_ms: int, *, has_ids: bool, is_follower: bool = False) -> Fetching:
        """Begins to take a request.

        What it names follows by `Fetching.take` and `forget`, maybe in pieces; then `settle` ends it.
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
        return Fetching(self, session.wanted, session=session, has_ids=has_ids)

    def settle(self, fetching: Fetching) -> None:
        """Everything that a request names was taken."""
        session = fetching.session
        if session is None or session.is_over:
            return
        if not session.wanted:
            self.end(session.id)
            fetching.leave_session()
        elif not self._has_room(session):
            self.end(session.id)
            fetching.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def _has_room(self, session: Session) -> bool:
        """Whether a session that has grown may stay; a follower drives consumers out."""
        if session.is_follower:
            return self._make_room(0, session)
        return len(session.wanted) <= CONSUMER_PARTITIONS_MAX and self.partitions <= self._partitions_max

    def _make_room(self, size: int, keeps: Session | None = None) -> bool:
        """Ends consumers' sessions, the one first that was not used for longest, until a follower's fits."""
        while self.partitions + size > self._partitions_max:
            victim = next((each for each in self._sessions.values() if not each.is_follower), None)
            if victim is None or victim is keeps:
                return False
            self.end(victim.id)
            self.evictions += 1
        return True

    def create(self, wanted: dict[Key, Wanted], now_ms: int, *, has_ids: bool, is_follower: bool) -> int:
        """A new session's id; NO_SESSION when there is nothing to remember or no room to do it."""
        if not wanted or (not is_follower and len(wanted) > CONSUMER_PARTITIONS_MAX):
            return NO_SESSION
        if is_follower:
            if not self._make_room(len(wanted)):
                return NO_SESSION
        elif self.partitions + len(wanted) > self._partitions_max:
            return NO_SESSION
        if len(self._sessions) >= self._sessions_max and not self._evict(len(wanted), now_ms, is_follower=is_follower):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._entropy.below(_EPOCH_MAX - 1)
        self._made += 1
        self.partitions += len(wanted)
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
        self.end(victim.id)
        self.evictions += 1
        return True

    def end(self, session_id: int) -> None:
        """Forgets a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over = True
            self.partitions -= len(session.wanted)


def _worth(session: Session) -> tuple[bool, int, int]:
    return session.is_follower, len(session.wanted), session.id


def _has_many_unknown(found: Sequence[tuple[Wanted, FetchedPartition]]) -> bool:
    return len(found) > UNKNOWN_MAX and sum(part.error_code in UNKNOWN for _, part in found) > UNKNOWN_MAX
