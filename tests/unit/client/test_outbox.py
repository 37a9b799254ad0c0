"""Batches to one partition: linger, order, sequences, retries; and a broker with every fault."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.metadata import TopicPartition
from penstock.client.producer.outbox import EPOCH_MAX, Batch, Outbox, OutboxSettings, Verdict
from penstock.model.errors import ErrorCode
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from tests.unit.client.brokers import PartitionLog

NONE = ErrorCode.NONE
LOST = ErrorCode.NETWORK_EXCEPTION
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
ID = 77


def make(
    *,
    linger_ms: int = 0,
    batch_bytes: int = 100,
    is_idempotent: bool = True,
    timeout_ms: int = 1000,
    is_known: bool = True,
) -> Outbox:
    outbox = Outbox(
        TopicPartition("t", 0),
        OutboxSettings(
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            codec=Codec.NONE,
            level=None,
            delivery_timeout_ms=timeout_ms,
            is_idempotent=is_idempotent,
            in_flight_max=5 if is_idempotent else 1,
        ),
    )
    outbox.identity = (ID, 0)
    outbox._is_known = is_known
    return outbox


def fill(outbox: Outbox, count: int, now_ms: int = 0) -> None:
    """Adds batches of one record each."""
    for number in range(count):
        outbox.add(None, b"%d" % number + b"x" * 90, (), 0, now_ms)


def answer(outbox: Outbox, batch: Batch, code: ErrorCode, now_ms: int = 0) -> Verdict:
    return outbox.answered(batch, code, now_ms, lambda attempt: 10 * attempt)


def identity(batch: Batch) -> tuple[int, int, int]:
    assert batch.data is not None
    view = BatchView(batch.data)
    assert view.is_intact
    return view.producer_id, view.producer_epoch, view.base_sequence


def test_an_open_batch_lingers_unless_it_is_full_or_flushed() -> None:
    outbox = make(linger_ms=50, batch_bytes=200)
    first = outbox.add(b"k", b"v", (), 7, now_ms=100)
    assert outbox.ready_at_ms(is_flushing=False) == 150
    assert outbox.ready_at_ms(is_flushing=True) == 0
    assert outbox.add(b"k", b"v", (), 7, now_ms=120) is first
    assert outbox.ready_at_ms(is_flushing=False) == 150
    assert outbox.add(b"k", b"v" * 100, (), 7, now_ms=130) is not first
    assert outbox.ready_at_ms(is_flushing=False) == 0
    assert outbox.take() is first
    answer(outbox, first, NONE)
    assert outbox.ready_at_ms(is_flushing=False) == 180


def test_a_batch_that_left_takes_no_more_records() -> None:
    outbox = make(batch_bytes=1000)
    first = outbox.add(None, b"a", (), 0, 0)
    outbox.take()
    assert answer(outbox, first, LOST) is Verdict.REPEAT
    assert outbox.queue[0] is first
    assert outbox.add(None, b"b", (), 0, 0) is not first


def test_sequences_count_records_and_wrap() -> None:
    outbox = make(batch_bytes=1000)
    outbox._next_sequence = 0x7FFFFFFE
    outbox.add(None, b"a", (), 0, 0)
    outbox.add(None, b"b", (), 0, 0)
    assert identity(outbox.take()) == (ID, 0, 0x7FFFFFFE)
    outbox.add(None, b"c", (), 0, 0)
    assert identity(outbox.take()) == (ID, 0, 0)


def test_at_most_five_are_in_flight_and_one_without_idempotence() -> None:
    outbox = make()
    fill(outbox, 7)
    for _ in range(5):
        assert outbox.ready_at_ms(is_flushing=False) == 0
        outbox.take()
    assert outbox.ready_at_ms(is_flushing=True) is None
    answer(outbox, outbox.in_flight[0], NONE)
    assert outbox.ready_at_ms(is_flushing=False) == 0

    plain = make(is_idempotent=False)
    fill(plain, 2)
    assert identity(plain.take()) == (-1, -1, -1)
    assert plain.ready_at_ms(is_flushing=True) is None


def test_until_the_broker_knows_us_batches_go_one_by_one() -> None:
    """A broker accepts any first sequence from an unknown producer: the second batch could be appended first."""
    outbox = make(is_known=False)
    fill(outbox, 3)
    first = outbox.take()
    assert outbox.ready_at_ms(is_flushing=True) is None
    answer(outbox, first, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert outbox.take() is first
    assert outbox.ready_at_ms(is_flushing=True) is None
    answer(outbox, first, NONE)
    outbox.take()
    assert outbox.ready_at_ms(is_flushing=True) == 10


def test_a_repeated_batch_keeps_its_sequence_and_its_place() -> None:
    outbox = make()
    fill(outbox, 4)
    one, two, three = (outbox.take() for _ in range(3))
    assert answer(outbox, one, LOST, now_ms=5) is Verdict.REPEAT
    # Nothing is sent before the other responses have arrived: otherwise the order would depend on timing.
    assert outbox.ready_at_ms(is_flushing=True) is None
    assert answer(outbox, three, OUT_OF_ORDER, now_ms=6) is Verdict.REPEAT
    assert answer(outbox, two, OUT_OF_ORDER, now_ms=6) is Verdict.REPEAT
    assert outbox.ready_at_ms(is_flushing=True) == 16
    assert [outbox.take() for _ in range(3)] == [one, two, three]
    assert [identity(each) for each in (one, two, three)] == [(ID, 0, 0), (ID, 0, 1), (ID, 0, 2)]


def test_a_broker_that_has_lost_our_place_gets_a_new_epoch() -> None:
    outbox = make()
    fill(outbox, 3)
    answer(outbox, outbox.take(), NONE)
    two, three = outbox.take(), outbox.take()
    assert answer(outbox, two, OUT_OF_ORDER) is Verdict.REPEAT
    assert outbox.ready_at_ms(is_flushing=True) is None, "the other must come back first"
    assert answer(outbox, three, OUT_OF_ORDER) is Verdict.REPEAT
    assert [identity(outbox.take()), identity(outbox.take())] == [(ID, 1, 0), (ID, 1, 1)]


@pytest.mark.parametrize("code", [TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_after_a_refused_batch_sequences_begin_anew(code: ErrorCode) -> None:
    outbox = make()
    fill(outbox, 3)
    one, two = outbox.take(), outbox.take()
    assert answer(outbox, one, code) is Verdict.FAILED
    assert outbox.ready_at_ms(is_flushing=True) is None, "its sequence is missing: the third must wait"
    assert answer(outbox, two, OUT_OF_ORDER) is Verdict.REPEAT
    assert [identity(outbox.take()), identity(outbox.take())] == [(ID, 1, 0), (ID, 1, 1)]


def test_after_an_expired_batch_its_followers_first_ask_under_their_old_names() -> None:
    """The expired batch may be in the log, and so may its followers: a new epoch could append them twice."""
    outbox = make(timeout_ms=1000)
    fill(outbox, 1, now_ms=0)
    fill(outbox, 2, now_ms=500)
    one, two = outbox.take(), outbox.take()
    answer(outbox, one, LOST, now_ms=900)
    answer(outbox, two, LOST, now_ms=900)
    assert outbox.expire(1000) == [one]
    assert outbox.take() is two
    assert identity(two) == (ID, 0, 1)
    assert outbox.ready_at_ms(is_flushing=True) is None, "the third has no sequence yet and must wait"
    assert answer(outbox, two, NONE, now_ms=1001) is Verdict.DONE
    assert identity(outbox.take()) == (ID, 1, 0)


def test_what_expires_in_flight_fails_with_its_answer() -> None:
    outbox = make(timeout_ms=1000)
    fill(outbox, 1)
    batch = outbox.take()
    assert outbox.expire(5000) == []
    assert answer(outbox, batch, LOST, now_ms=5000) is Verdict.FAILED
    fill(outbox, 1, now_ms=5000)
    assert identity(outbox.take()) == (ID, 1, 0)


def test_what_was_never_sent_leaves_no_gap() -> None:
    outbox = make(timeout_ms=1000)
    fill(outbox, 1)
    assert len(outbox.expire(1000)) == 1
    fill(outbox, 1, now_ms=1000)
    assert identity(outbox.take()) == (ID, 0, 0)


def test_a_used_up_epoch_asks_for_another_producer_id() -> None:
    outbox = make()
    outbox.identity = (ID, EPOCH_MAX)
    fill(outbox, 2)
    answer(outbox, outbox.take(), TOO_LARGE)
    assert outbox.identity is None
    assert outbox.spent_id == ID
    outbox.identity = (ID + 1, 0)
    assert identity(outbox.take()) == (ID + 1, 0, 0)


def test_a_fenced_producer_starts_over_unless_it_may_write_twice() -> None:
    outbox = make()
    fill(outbox, 2)
    one = outbox.take()
    answer(outbox, one, LOST)
    outbox.take()
    assert answer(outbox, one, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.FAILED
    assert outbox.spent_id == ID
    outbox.identity = (ID + 1, 0)
    two = outbox.take()
    assert identity(two) == (ID + 1, 0, 0)
    assert answer(outbox, two, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.REPEAT


def test_a_batch_that_may_arrive_late_is_not_sent_under_a_new_name() -> None:
    """The first batch expires; the second is refused, while an earlier attempt of both is still in flight."""
    outbox = make(timeout_ms=1000)
    fill(outbox, 1, now_ms=0)
    fill(outbox, 2, now_ms=500)
    one, two = outbox.take(), outbox.take()
    answer(outbox, one, LOST, now_ms=900)
    answer(outbox, two, LOST, now_ms=900)
    assert outbox.expire(1000) == [one]
    assert outbox.take() is two
    assert answer(outbox, two, OUT_OF_ORDER, now_ms=1001) is Verdict.REPEAT
    assert outbox.take_lost() == [two]
    assert identity(outbox.take()) == (ID, 1, 0), "the third was never sent"


# Outcomes of a batch: the broker appends it or not, and the response arrives or not.
FATES = ["answered", "answered", "answered", "lost before", "lost after", "adrift", "moved", "refused", "refused late"]


@settings(max_examples=500, deadline=None)
@given(
    fates=st.lists(st.sampled_from(FATES), max_size=60),
    windows=st.lists(st.integers(1, 5), max_size=40),
    picks=st.lists(st.integers(0, 4), max_size=60),
    naps=st.sets(st.integers(1, 40), max_size=3),
)
def test_whatever_happens_on_the_way_nothing_is_there_twice_or_out_of_order(
    fates: list[str], windows: list[int], picks: list[int], naps: set[int]
) -> None:
    """Acknowledged records are in the log; expired ones may be. Responses arrive over several connections."""
    outbox, log = make(timeout_ms=60_000, is_known=False), PartitionLog(0)
    fate, sizes, order = deque(fates), deque(windows), deque(picks)
    fill(outbox, 30)
    now_ms = rounds = 0
    delivered: list[int] = []
    answers: list[tuple[Batch, ErrorCode]] = []
    adrift: list[bytes] = []
    while not outbox.is_idle:
        rounds += 1
        assert rounds < 1000
        now_ms += 70_000 if rounds in naps else 1000
        outbox.expire(now_ms)
        outbox.take_lost()
        if not rounds % 4:  # bytes of a broken connection that the broker reads only now
            for data in adrift:
                log.append(data)
            adrift.clear()
        room = sizes.popleft() if sizes else 5
        while room and (at := outbox.ready_at_ms(is_flushing=True)) is not None and at <= now_ms:
            room -= 1
            batch = outbox.take()
            assert batch.data is not None
            code = NONE
            match fate.popleft() if fate else "answered":
                case "answered":
                    code, _ = log.append(bytes(batch.data))
                case "lost after":
                    log.append(bytes(batch.data))
                    code = LOST
                case "lost before":
                    code = LOST
                case "adrift":
                    adrift.append(bytes(batch.data))
                    code = LOST
                case "refused":
                    code = TOO_LARGE
                case "refused late":
                    log.append(bytes(batch.data))
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                case _:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answers.append((batch, code))
        if answers:  # the other responses take longer
            batch, code = answers.pop((order.popleft() if order else 0) % len(answers))
            if answer(outbox, batch, code, now_ms) is Verdict.DONE:
                delivered.append(batch.number)
    there = [int((record.value or b"").rstrip(b"x")) + 1 for record in log.records()]
    assert there == sorted(set(there))
    assert set(delivered) <= set(there)
