"""Fetch sessions, compared with a model that keeps all state."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.model.errors import ErrorCode
from penstock.replication.fetch_sessions import (
    CONSUMER_PARTITIONS_MAX,
    EVICTION_MS,
    Fetching,
    FetchResult,
    FetchSessions,
    RequestedPartition,
)
from penstock.simulator.entropy import SimulatedEntropy
from penstock.wire.hot.fetch import FetchedPartition
from penstock.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

INDEXES = range(6)
SLOTS = 3


def topics(*parts: FetchPartition, name: str = "t", topic_id: bytes = bytes(16)) -> list[FetchTopic]:
    return [FetchTopic(topic=name, topic_id=topic_id, partitions=parts)] if parts else []


def part(index: int, offset: int = 0, epoch: int = -1, bytes_max: int = 100) -> FetchPartition:
    return FetchPartition(
        partition=index, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=bytes_max
    )


def found(
    requested: RequestedPartition, high_watermark: int = 0, records: bytes = b"", **options: Any
) -> tuple[RequestedPartition, FetchedPartition]:
    defaults: dict[str, Any] = {"error_code": 0, "log_start_offset": 0}
    return requested, FetchedPartition(
        requested.index, high_watermark=high_watermark, records=records, **defaults | options
    )


def indexes(result: FetchResult) -> list[int]:
    return [requested.index for requested, _ in result.found]


@dataclass
class Reader:
    """A client, and the state it has received."""

    session_id: int = 0
    epoch: int = 0
    asked: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    knows: dict[int, tuple[int, int]] = field(default_factory=dict)
    """High watermark and log start offset of the last response without an error."""


class Sessions(RuleBasedStateMachine):
    """Readers with sessions, some of which are evicted; partitions with changing state."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.sessions = FetchSessions(SimulatedEntropy(Random(1)), sessions_max=SLOTS)
        self.readers = [Reader() for _ in range(5)]
        self.state = dict.fromkeys(INDEXES, (0, 0))
        self.errors: dict[int, ErrorCode] = {}

    # partitions

    @rule(ms=st.integers(1, EVICTION_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(index=st.sampled_from(INDEXES), records=st.integers(1, 3))
    def records_come(self, index: int, records: int) -> None:
        high_watermark, start = self.state[index]
        self.state[index] = (high_watermark + records, start)

    @rule(index=st.sampled_from(INDEXES))
    def records_go(self, index: int) -> None:
        high_watermark, _ = self.state[index]
        self.state[index] = (high_watermark, high_watermark)

    @rule(index=st.sampled_from(INDEXES))
    def trouble_comes(self, index: int) -> None:
        self.errors[index] = ErrorCode.KAFKA_STORAGE_ERROR

    @rule(index=st.sampled_from(INDEXES))
    def trouble_goes(self, index: int) -> None:
        self.errors.pop(index, None)

    # readers

    @rule(
        who=st.integers(0, 4), asked=st.dictionaries(st.sampled_from(INDEXES), st.integers(0, 5)), wants=st.booleans()
    )
    def full(self, who: int, asked: dict[int, int], wants: bool) -> None:
        reader = self.readers[who]
        parts = [part(index, epoch, epoch, 10 + epoch) for index, epoch in asked.items()]
        fetching = self.sessions.begin(
            reader.session_id, 0 if wants else -1, topics(*parts), (), self.now_ms, has_ids=False
        )
        assert fetching.error_code == ErrorCode.NONE
        assert reader.session_id not in self.sessions, "a full request ends the session that it names"
        reader.asked = {index: (epoch, epoch, 10 + epoch) for index, epoch in asked.items()}
        reader.order = list(asked)
        reader.knows = {}
        result = self.look(reader, fetching)
        assert indexes(result) == list(asked), "a full request is told everything"
        reader.session_id = result.session_id
        reader.epoch = 1
        assert (result.session_id in self.sessions) == (result.session_id != 0)
        assert wants or result.session_id == 0

    @precondition(lambda self: any(reader.session_id for reader in self.readers))
    @rule(
        data=st.data(),
        changed=st.dictionaries(st.sampled_from(INDEXES), st.integers(0, 5)),
        forgotten=st.lists(st.sampled_from(INDEXES), unique=True),
    )
    def incremental(self, data: st.DataObject, changed: dict[int, int], forgotten: list[int]) -> None:
        reader = data.draw(st.sampled_from([reader for reader in self.readers if reader.session_id]))
        was_there = reader.session_id in self.sessions
        parts = [part(index, epoch, epoch, 10 + epoch) for index, epoch in changed.items()]
        fetching = self.sessions.begin(
            reader.session_id,
            reader.epoch,
            topics(*parts),
            [ForgottenTopic(topic="t", partitions=forgotten)],
            self.now_ms,
            has_ids=False,
        )
        if not was_there:
            assert fetching.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            reader.session_id = 0
            return
        assert fetching.error_code == ErrorCode.NONE
        for index, epoch in changed.items():
            if index not in reader.asked:
                reader.order.append(index)
            reader.asked[index] = (epoch, epoch, 10 + epoch)
        for index in forgotten:
            if index in reader.asked:
                del reader.asked[index]
                reader.order.remove(index)
            reader.knows.pop(index, None)
        if not reader.asked:
            assert not fetching.has_partitions
            assert reader.session_id not in self.sessions, "an empty session ends"
            reader.session_id = 0
            return
        result = self.look(reader, fetching)
        assert (result.session_id, result.error_code) == (reader.session_id, ErrorCode.NONE)
        reader.epoch += 1

    def look(self, reader: Reader, fetching: Fetching) -> FetchResult:
        """Fetches, and checks which partitions are read and returned."""
        seen = [(w.index, (w.offset, w.leader_epoch, w.bytes_max)) for w in fetching.requested]
        assert seen == [(index, reader.asked[index]) for index in reader.order]
        results = []
        for requested in fetching.requested:
            high_watermark, start = self.state[requested.index]
            code = self.errors.get(requested.index, ErrorCode.NONE)
            records = b"" if code else b"r" * max(0, high_watermark - max(requested.offset, start))
            results.append(
                found(requested, -1 if code else high_watermark, records, log_start_offset=start, error_code=code)
            )
        was_incremental = fetching.is_incremental
        result = fetching.answer(results, self.now_ms)
        if was_incremental:
            news = [
                requested.index
                for requested, each in results
                if each.error_code
                or each.records
                or reader.knows.get(requested.index) != (each.high_watermark, each.log_start_offset)
            ]
            assert indexes(result) == news, "exactly what is new is told"
            for index in [requested.index for requested, each in results if each.records]:
                reader.order.remove(index)
                reader.order.append(index)
        for requested, each in result.found:
            if each.error_code:
                reader.knows.pop(requested.index, None)
            else:
                reader.knows[requested.index] = (each.high_watermark, each.log_start_offset)
        return result

    @precondition(lambda self: any(reader.session_id in self.sessions for reader in self.readers))
    @rule(data=st.data(), wrong=st.sampled_from([-2, -1, 1, 2, 5]))
    def wrong_epoch(self, data: st.DataObject, wrong: int) -> None:
        reader = data.draw(st.sampled_from([r for r in self.readers if r.session_id in self.sessions]))
        epoch = reader.epoch + wrong
        if epoch in (0, -1):
            return
        fetching = self.sessions.begin(reader.session_id, epoch, topics(part(0, 99)), (), self.now_ms, has_ids=False)
        assert fetching.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert reader.session_id in self.sessions, "and changes nothing"

    @precondition(lambda self: any(reader.session_id in self.sessions for reader in self.readers))
    @rule(data=st.data())
    def wrong_kind(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from([r for r in self.readers if r.session_id in self.sessions]))
        fetching = self.sessions.begin(
            reader.session_id, reader.epoch, topics(part(0, 99)), (), self.now_ms, has_ids=True
        )
        assert fetching.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    @invariant()
    def there_is_room(self) -> None:
        assert len(self.sessions) <= SLOTS

    @invariant()
    def what_is_remembered_is_what_was_asked(self) -> None:
        for reader in self.readers:
            session = self.sessions._sessions.get(reader.session_id)
            if session is not None:
                assert [w.index for w in session.requested.values()] == reader.order
                assert session.epoch == reader.epoch


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def fresh(sessions_max: int = SLOTS) -> FetchSessions:
    return FetchSessions(SimulatedEntropy(Random(1)), sessions_max=sessions_max)


def open_session(sessions: FetchSessions, size: int, now_ms: int = 0, *, is_follower: bool = False) -> int:
    fetching = sessions.begin(
        0, 0, topics(*(part(n) for n in range(size))), (), now_ms, has_ids=False, is_follower=is_follower
    )
    return fetching.answer([found(requested) for requested in fetching.requested], now_ms).session_id


def go_on(sessions: FetchSessions, session_id: int, epoch: int, now_ms: int = 0) -> Fetching:
    return sessions.begin(session_id, epoch, (), (), now_ms, has_ids=False)


def test_a_large_session_evicts_a_small_one_but_not_before_its_time() -> None:
    sessions = fresh()
    ids = [open_session(sessions, size) for size in (3, 2, 4)]
    assert open_session(sessions, 9, EVICTION_MS) == 0
    for session_id in ids:
        assert go_on(sessions, session_id, 1, EVICTION_MS).error_code == ErrorCode.NONE
    assert open_session(sessions, 2, EVICTION_MS + 1) == 0, "a session of the same size is worth no more"
    newcomer = open_session(sessions, 3, EVICTION_MS + 1)
    assert newcomer != 0
    assert ids[1] not in sessions
    assert sessions.evictions == 1


def test_a_stale_session_goes_first_whatever_its_size() -> None:
    sessions = fresh()
    ids = [open_session(sessions, 9), open_session(sessions, 1), open_session(sessions, 1)]
    for session_id in ids[1:]:
        go_on(sessions, session_id, 1, EVICTION_MS)
    assert open_session(sessions, 1, EVICTION_MS + 1) != 0
    assert [session_id in sessions for session_id in ids] == [False, True, True]


def test_the_stale_one_is_the_one_that_was_not_used() -> None:
    sessions = fresh()
    ids = [open_session(sessions, 1), open_session(sessions, 9), open_session(sessions, 1)]
    for session_id in (ids[0], ids[2]):
        go_on(sessions, session_id, 1, EVICTION_MS)
    assert open_session(sessions, 1, EVICTION_MS + 1) != 0
    assert [session_id in sessions for session_id in ids] == [True, False, True]


def test_a_follower_evicts_a_consumer_at_once_but_no_consumer_a_follower() -> None:
    sessions = fresh(2)
    first = open_session(sessions, 50)
    assert open_session(sessions, 1, is_follower=True) != 0
    assert open_session(sessions, 1, is_follower=True) != 0
    assert first not in sessions
    assert open_session(sessions, 99) == 0
    assert open_session(sessions, 99, is_follower=True) == 0


def test_the_epoch_wraps_to_one() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 1)
    sessions._sessions[session_id].epoch = 2**31 - 1
    assert go_on(sessions, session_id, 2**31 - 1).error_code == ErrorCode.NONE
    assert go_on(sessions, session_id, 1).error_code == ErrorCode.NONE


def test_an_answer_that_was_overtaken_is_no_answer() -> None:
    """A reader that sends again before a response cannot use the first response."""
    sessions = fresh()
    session_id = open_session(sessions, 2)
    first = go_on(sessions, session_id, 1)
    second = go_on(sessions, session_id, 2)
    result = first.answer([found(requested, 5) for requested in first.requested], 0)
    assert (result.error_code, result.session_id, result.found) == (
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        session_id,
        (),
    )
    assert indexes(second.answer([found(requested, 5) for requested in second.requested], 0)) == [0, 1]


def test_the_leader_epoch_is_remembered() -> None:
    """R28, KAFKA-9338: otherwise a session would serve a reader with stale metadata unchecked."""
    sessions = fresh()
    fetching = sessions.begin(0, 0, topics(part(0, epoch=7)), (), 0, has_ids=False)
    session_id = fetching.answer([found(requested) for requested in fetching.requested], 0).session_id
    assert [requested.leader_epoch for requested in go_on(sessions, session_id, 1).requested] == [7]


def test_no_partition_starves() -> None:
    """If a response holds one partition, all partitions still get their turn."""
    sessions = fresh()
    session_id = open_session(sessions, 4)
    served = []
    for epoch in range(1, 9):
        fetching = go_on(sessions, session_id, epoch)
        results = [found(requested, 9, b"r" if n == 0 else b"") for n, requested in enumerate(fetching.requested)]
        served.append(next(w.index for w, each in fetching.answer(results, 0).found if each.records))
    assert served == [0, 1, 2, 3, 0, 1, 2, 3]


def test_topics_by_id_are_other_topics_than_those_by_name() -> None:
    sessions = fresh()
    fetching = sessions.begin(0, 0, topics(part(0), topic_id=b"i" * 16), (), 0, has_ids=True)
    assert [requested.topic for requested in fetching.requested] == [b"i" * 16]
    session_id = fetching.answer([found(requested) for requested in fetching.requested], 0).session_id
    forget = [ForgottenTopic(topic_id=b"i" * 16, partitions=[0])]
    again = sessions.begin(session_id, 1, topics(part(1), topic_id=b"j" * 16), forget, 0, has_ids=True)
    assert [(requested.topic, requested.index) for requested in again.requested] == [(b"j" * 16, 1)]


@pytest.mark.parametrize("news", [{"diverging_epoch": (1, 2)}, {"preferred_read_replica": 4}, {"log_start_offset": 3}])
def test_other_news_is_news_too(news: dict[str, Any]) -> None:
    sessions = fresh()
    session_id = open_session(sessions, 2)
    fetching = go_on(sessions, session_id, 1)
    first, second = fetching.requested
    assert indexes(fetching.answer([found(first), found(second, **news)], 0)) == [1]


def test_a_partition_named_twice_is_one_with_the_last_wish() -> None:
    fetching = fresh().begin(0, -1, topics(part(0, 1), part(1), part(0, 5)), (), 0, has_ids=False)
    assert [(requested.index, requested.offset) for requested in fetching.requested] == [(0, 5), (1, 0)]


# --- changed partitions -----------------------------------------------------------------------------------------------


def test_a_followers_session_is_looked_at_where_something_was_asked_or_marked() -> None:
    """If one of a thousand partitions changes, only one is read."""
    sessions = fresh()
    session_id = open_session(sessions, 3, is_follower=True)
    fetching = go_on(sessions, session_id, 1)
    assert [requested.index for requested in fetching.unsettled] == [0, 1, 2]
    for requested in fetching.unsettled:
        fetching.settle(requested)
    again = go_on(sessions, session_id, 2)
    assert list(again.unsettled) == []
    assert [requested.index for requested in again.requested] == [0, 1, 2]
    _, second, _ = again.requested
    session = again.marked_session
    assert session is not None
    session.mark(second, wakes=False)
    assert list(again.unsettled) == [second]
    asked = sessions.begin(session_id, 3, topics(part(2)), (), 0, has_ids=False)
    assert [requested.index for requested in asked.unsettled] == [1, 2]


def test_only_what_is_worth_an_answer_wakes_whoever_waits() -> None:
    sessions = fresh()
    fetching = go_on(sessions, open_session(sessions, 2, is_follower=True), 1)
    session, woken = fetching.marked_session, list[int]()
    assert session is not None
    session.on_change = lambda: woken.append(session.changes)
    first, second = fetching.requested
    session.mark(first, wakes=False)
    assert woken == []
    session.mark(second, wakes=True)
    assert woken == [1]


def test_what_gave_records_is_looked_at_last() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 3, is_follower=True)
    fetching = go_on(sessions, session_id, 1)
    fetching.answer([found(requested, 9, b"r" if requested.index == 0 else b"") for requested in fetching.unsettled], 0)
    assert [requested.index for requested in go_on(sessions, session_id, 2).unsettled] == [1, 2, 0]


def test_what_is_forgotten_has_no_session_any_more() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 2, is_follower=True)
    first, _ = go_on(sessions, session_id, 1).requested
    session = first.session
    assert session is not None
    fetching = sessions.begin(session_id, 2, (), [ForgottenTopic(topic="t", partitions=[0])], 0, has_ids=False)
    assert first.session is None
    assert [requested.index for requested in fetching.unsettled] == [1]
    sessions.begin(session_id, 3, (), [ForgottenTopic(topic="t", partitions=[1])], 0, has_ids=False)
    assert session.is_over


def test_consumers_sessions_are_looked_at_as_a_whole() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 2)
    fetching = go_on(sessions, session_id, 1)
    assert fetching.marked_session is None
    for requested in fetching.unsettled:
        fetching.settle(requested)
    assert [requested.index for requested in go_on(sessions, session_id, 2).unsettled] == [0, 1]


# --- bounds -----------------------------------------------------------------------------------------------------------


def missing(requested: RequestedPartition) -> tuple[RequestedPartition, FetchedPartition]:
    return requested, FetchedPartition(requested.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_partitions_that_do_not_exist_make_no_session() -> None:
    """300,000 of them took 53 MB each time, for two minutes."""
    sessions = fresh()
    fetching = sessions.begin(0, 0, topics(*(part(n) for n in range(1_000))), (), 0, has_ids=False)
    result = fetching.answer([missing(requested) for requested in fetching.requested], 0)
    assert (result.session_id, len(result.found)) == (0, 1_000), "each is told of, and none is kept"
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_few_that_do_not_exist_stay_so_that_they_are_told_of_once_they_do() -> None:
    sessions = fresh()
    fetching = sessions.begin(0, 0, topics(*(part(n) for n in range(5))), (), 0, has_ids=False)
    session_id = fetching.answer([missing(requested) for requested in fetching.requested], 0).session_id
    assert session_id != 0
    again = go_on(sessions, session_id, 1)
    assert indexes(again.answer([found(requested) for requested in again.requested], 0)) == [0, 1, 2, 3, 4]


def test_a_session_ends_when_too_much_that_does_not_exist_is_added() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 2)
    fetching = sessions.begin(session_id, 1, topics(*(part(n) for n in range(2, 300))), (), 0, has_ids=False)
    assert not fetching.error_code
    result = fetching.answer([missing(requested) for requested in fetching.requested if requested.index >= 2], 0)
    assert (result.error_code, len(result.found)) == (ErrorCode.NONE, 298), "this answer is as always"
    assert go_on(sessions, session_id, 2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 0


def test_a_large_consumer_has_no_session_and_a_large_follower_has_one() -> None:
    sessions = fresh()
    assert open_session(sessions, CONSUMER_PARTITIONS_MAX + 1) == 0
    assert open_session(sessions, CONSUMER_PARTITIONS_MAX) != 0
    assert open_session(sessions, CONSUMER_PARTITIONS_MAX + 1, is_follower=True) != 0


def test_a_consumers_session_that_grows_too_large_ends() -> None:
    sessions = fresh()
    session_id = open_session(sessions, CONSUMER_PARTITIONS_MAX)
    grown = sessions.begin(session_id, 1, topics(part(CONSUMER_PARTITIONS_MAX)), (), 0, has_ids=False)
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it names everything in the next request"
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_all_sessions_together_hold_so_many_partitions() -> None:
    sessions = FetchSessions(SimulatedEntropy(Random(1)), partitions_max=100)
    ids = [open_session(sessions, 40), open_session(sessions, 40)]
    assert open_session(sessions, 40) == 0, "another consumer goes without"
    assert sessions.partitions == 80
    assert open_session(sessions, 40, is_follower=True) != 0
    assert ids[0] not in sessions, "a follower takes the room of the consumer that was not heard for longest"
    assert sessions.partitions == 80
    assert open_session(sessions, 90, is_follower=True) == 0
    assert (len(sessions), sessions.partitions) == (1, 40)


def test_what_is_counted_is_what_is_held() -> None:
    sessions = fresh()
    session_id = open_session(sessions, 5)
    sessions.begin(session_id, 1, topics(part(3), part(7), part(7)), (), 0, has_ids=False)
    assert sessions.partitions == 6
    forget = [ForgottenTopic(topic="t", partitions=[0, 0, 9])]
    fetching = sessions.begin(session_id, 2, (), forget, 0, has_ids=False)
    assert sessions.partitions == len(list(fetching.requested)) == 5
    open_session(sessions, 2)
    forget = [ForgottenTopic(topic="t", partitions=range(10))]
    assert not sessions.begin(session_id, 3, (), forget, 0, has_ids=False).has_partitions
    assert (len(sessions), sessions.partitions) == (1, 2)
