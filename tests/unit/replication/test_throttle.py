"""The throttle of moving replicas: a rate, with bursts that are repaid by waiting."""

from penstock.replication.throttle import Throttle


def test_what_comes_at_once_is_paid_for_by_waiting() -> None:
    throttle = Throttle(1_000, now=0)
    assert throttle.opens_at(0) == 0
    throttle.take(3_000, now=0)
    assert throttle.opens_at(0) == 2_001
    assert throttle.opens_at(2_000) == 2_001
    assert throttle.opens_at(2_001) == 2_001


def test_what_is_not_used_is_kept_for_a_second_and_no_longer() -> None:
    throttle = Throttle(1_000, now=0)
    throttle.take(1_500, now=60_000)
    assert throttle.opens_at(60_000) == 60_501


def test_another_rate_counts_from_now_on() -> None:
    throttle = Throttle(1_000, now=0)
    throttle.take(11_000, now=0)
    throttle.set_rate(10_000, now=0)
    assert throttle.opens_at(0) == 1_001


def test_a_clock_that_goes_back_fills_nothing() -> None:
    throttle = Throttle(1_000, now=1_000)
    throttle.take(2_000, now=1_000)
    assert throttle.opens_at(500) == 1_501
