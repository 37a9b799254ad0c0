"""What a run does with a query that fails, is overtaken, or is stopped, and what it reports meanwhile."""

import pytest

from penstock.spark.lake.commit import CommitRefused
from penstock.spark.running.failures import RACE
from penstock.spark.running.run import FAILURES_MAX, FAILURES_ONCE_MAX, State
from tests.unit.spark.running.queries import FakeStream, result, run_of

ACCIDENT = "Python worker failed to connect back"
FINAL = "penstock.spark.gaps.DataLost: records are gone"
LATEST = {"orders": {"0": 10}}
OVERTAKEN = CommitRefused("Another run of orders_lake (process 7 on host b) has taken over its checkpoint")


def starts_until_given_up(sentence: str, *, is_once: bool) -> int:
    stream = FakeStream([RuntimeError(sentence)] * 100)
    run = run_of(stream, is_once=is_once)
    for second in range(10_000):
        run.look(float(second))
        if run.state is State.FAILED:
            return len(stream.queries)
    raise AssertionError("it was never given up")


@pytest.mark.parametrize(("is_once", "starts"), [(True, FAILURES_ONCE_MAX), (False, FAILURES_MAX)])
def test_what_fails_by_accident_is_tried_again(is_once: bool, starts: int) -> None:
    assert starts_until_given_up(ACCIDENT, is_once=is_once) == starts > 1


def test_what_needs_a_person_is_not_tried_again() -> None:
    assert starts_until_given_up(FINAL, is_once=True) == 1


# --- overtaken


def test_an_overtaken_run_ends_at_once_while_its_query_runs() -> None:
    """A resumed driver may wait for a broker, an executor or its next trigger: its query reports nothing meanwhile."""
    stream = FakeStream()
    run = run_of(stream)
    run.look(0.0)
    run.look(0.5)
    assert run.state is State.RUNNING
    stream.successor = OVERTAKEN
    run.look(1.0)
    status = run.status()
    assert status.state is State.FAILED
    assert status.failure == (str(OVERTAKEN), True)
    assert [each.stops for each in stream.queries] == [1]
    assert stream.is_closing


def test_an_overtaken_run_whose_query_failed_by_accident_is_not_started_again() -> None:
    """Started again it would read its successor's checkpoint, and be a rival with the same rights."""
    stream = FakeStream([RuntimeError(ACCIDENT)])
    run = run_of(stream)
    run.look(0.0)
    run.look(0.5)
    assert run.state is State.WAITING
    stream.successor = OVERTAKEN
    for second in range(1, 100):
        run.look(float(second))
    assert (run.state, len(stream.queries)) == (State.FAILED, 1)


def test_a_query_that_does_not_stop_does_not_keep_its_run() -> None:
    stream = FakeStream()
    run = run_of(stream)
    run.look(0.0)

    def stop() -> None:
        raise RuntimeError("java.util.concurrent.TimeoutException: Stream Execution thread did not stop within 20000")

    stream.queries[0].stop = stop  # type: ignore[method-assign]
    stream.successor = OVERTAKEN
    run.look(1.0)
    assert run.state is State.FAILED


@pytest.mark.parametrize(("is_held", "state"), [(True, State.WAITING), (False, State.FAILED)])
def test_the_run_with_the_claim_survives_a_lost_race(is_held: bool, state: State) -> None:
    stream = FakeStream([RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.")])
    stream.claim.is_held = is_held
    run = run_of(stream)
    run.look(0.0)
    run.look(0.5)
    assert run.state is state
    assert run.failure is not None
    assert run.failure.sentence == RACE.sentence


# --- a broker that is away


def test_a_run_waits_for_a_broker_that_does_not_answer() -> None:
    run = run_of(FakeStream())
    run.look(0.0)
    run.saw(LATEST)
    assert (run.status().state, run.status().reading.lag) == (State.RUNNING, 10)
    run.missed("connection refused", is_broker_away=True)
    status = run.status()
    assert (status.state, status.reading.lag, status.broker_error) == (
        State.BROKER_AWAY,
        None,
        "connection refused",
    )
    run.saw(LATEST)
    assert (run.status().state, run.status().broker_error) == (State.RUNNING, None)


# --- stopped


def test_a_run_that_is_stopped_is_done() -> None:
    stream = FakeStream()
    run = run_of(stream)
    run.look(0.0)
    stream.told(result(0, 10))
    run.saw(LATEST)
    run.stop()
    assert run.status().state is State.DONE
    assert stream.queries[0].stops == 1


def test_a_run_that_never_began_is_done() -> None:
    run = run_of(FakeStream())
    run.stop()
    assert run.status().state is State.DONE


def test_a_run_that_is_stopped_while_the_broker_is_away_is_not_done() -> None:
    run = run_of(FakeStream())
    run.look(0.0)
    run.missed("connection refused", is_broker_away=True)
    run.stop()
    assert run.status().state is State.BROKER_AWAY


def test_a_run_that_is_stopped_before_it_is_tried_again_is_not_done() -> None:
    run = run_of(FakeStream([RuntimeError(ACCIDENT)]))
    run.look(0.0)
    run.look(0.5)
    run.saw(LATEST)
    run.stop()
    assert run.status().state is State.WAITING


def test_a_batch_that_failed_after_the_stop_leaves_the_run_undone() -> None:
    stream = FakeStream()
    run = run_of(stream)
    run.look(0.0)
    run.saw(LATEST)
    run.close_softly()
    stream.failure = RuntimeError(ACCIDENT)
    run.stop()
    assert run.status().state is State.WAITING
    assert run.failure is not None


def test_a_query_that_ends_since_no_further_batch_may_begin_is_done() -> None:
    """Another pipeline of the process may still be busy for minutes."""
    stream = FakeStream()
    run = run_of(stream)
    run.look(0.0)
    run.close_softly()
    stream.has_closed = True
    stream.queries[0].end(RuntimeError("penstock.spark.running.lake_stream.Closing: no further batch begins"))
    run.look(0.5)
    assert (run.state, run.failure) == (State.DONE, None)


def test_nothing_is_started_again_after_the_stop() -> None:
    stream = FakeStream([RuntimeError(ACCIDENT)])
    run = run_of(stream)
    run.look(0.0)
    run.look(0.5)
    run.close_softly()
    run.look(100.0)
    assert (run.state, len(stream.queries)) == (State.WAITING, 1)
