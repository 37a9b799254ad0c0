"""The displayed progress of a pipeline is correct."""

import pytest

from penstock.spark.running.gauge import FRESH_S, Gauge, Reading, between
from penstock.spark.running.line import clock, count, progress_line

US = 1_000_000


def at(offset: int, other: int = 0) -> dict[str, dict[str, int]]:
    return {"orders": {"0": offset, "1": other}}


def test_a_pipeline_that_catches_up() -> None:
    gauge = Gauge(at(0))
    gauge.saw(0, at(1000))
    first = gauge.read(0, 100 * US)
    assert (first.done, first.lag, first.lag_s, first.rows_per_s, first.eta_s, first.percent) == (
        0,
        1000,
        None,
        0,
        None,
        0,
    )
    for second in range(1, 6):
        gauge.wrote(second, at(second * 100), 100, newest_us=second * US)
        gauge.saw(second, at(1000))
    reading = gauge.read(5, wall_us=100 * US)
    assert (reading.done, reading.lag, reading.percent) == (500, 500, 50)
    assert reading.rows_per_s == 100
    assert reading.lag_s == 95, "so old is the newest record in the table"
    assert reading.eta_s == 5


def test_a_pipeline_that_falls_behind_has_no_time_of_arrival() -> None:
    gauge = Gauge(at(0))
    for second in range(5):
        gauge.wrote(second, at(second * 10), 10, newest_us=None)
        gauge.saw(second, at(100 + second * 100))
    assert gauge.read(5, 0).eta_s is None


def test_up_to_date() -> None:
    gauge = Gauge(at(5, 5))
    gauge.saw(0, at(5, 5))
    reading = gauge.read(1, 0)
    assert (reading.lag, reading.lag_s, reading.eta_s, reading.percent) == (0, 0, 0, 100)


def test_a_lag_is_known_only_while_the_broker_answers() -> None:
    """A topic whose end was read before the broker went away is not up to date: it may have grown since."""
    gauge = Gauge(at(5, 5))
    unknown = gauge.read(0, 0)
    assert (unknown.lag, unknown.percent, unknown.eta_s, unknown.is_broker_away) == (None, None, None, False)
    gauge.saw(1, at(5, 5))
    assert (gauge.read(1 + FRESH_S, 0).lag, gauge.read(1 + FRESH_S, 0).is_broker_away) == (0, False)
    stale = gauge.read(1.1 + FRESH_S, 0)
    assert (stale.lag, stale.is_broker_away) == (None, True)
    gauge.saw(10, at(5, 6))
    assert (gauge.read(10, 0).lag, gauge.read(10, 0).is_broker_away) == (1, False)
    gauge.missed(11, is_broker_away=True)
    assert (gauge.read(11, 0).lag, gauge.read(11, 0).is_broker_away) == (None, True)
    gauge.missed(12, is_broker_away=False)
    assert (gauge.read(12, 0).lag, gauge.read(12, 0).is_broker_away) == (None, False), "it answers, but refuses"


def test_a_broker_that_never_answers_is_away_after_some_seconds() -> None:
    gauge = Gauge(at(0))
    assert not gauge.read(100, 0).is_broker_away
    assert gauge.read(100.1 + FRESH_S, 0).is_broker_away


def test_what_was_long_ago_does_not_count() -> None:
    gauge = Gauge(at(0))
    for second in (0, 1, 1000, 1001):
        gauge.wrote(second, at(second), 1000, newest_us=None)
    assert gauge.read(1002, 0).rows_per_s == pytest.approx(500)


def test_almost_there_is_not_there() -> None:
    assert Reading(999_999, 1, 0, 0, None).percent == 99


def test_offsets_between() -> None:
    assert between({}, at(7)) == 7
    assert between({"orders": {"0": -2}}, at(7)) == 7
    assert between(at(9), at(7)) == 0


def test_a_line() -> None:
    reading = Reading(done=61, lag=3_100_000, lag_s=8, rows_per_s=412_000, eta_s=42)
    text = progress_line("orders_lake", reading, batch=812, batch_s=1.9, bad=3)
    assert text == (
        "orders_lake   --------------   0 %    412 k rows/s   lag 3.1 M (8 s)   ETA 00:42   batch 812  1.9 s   DLQ 3"
    )
    done = progress_line("orders_lake", Reading(5, 0, 0, 0, 0), batch=None, batch_s=None, bad=0, note="again soon: why")
    assert (
        done
        == "orders_lake   ############## 100 %        0 rows/s   lag 0   up to date   batch -   DLQ 0   again soon: why"
    )


def test_a_line_while_the_broker_is_away_never_says_up_to_date() -> None:
    away = Reading(5, None, None, 0, None, is_broker_away=True)
    assert progress_line("orders_lake", away, batch=7, batch_s=0.2, bad=0, note="connection refused") == (
        "orders_lake   --------------   ? %        0 rows/s   lag ?   waiting for broker   batch 7  0.2 s   DLQ 0   "
        "connection refused"
    )
    unknown = progress_line("orders_lake", Reading(0, None, None, 0, None), batch=None, batch_s=None, bad=0)
    assert "lag ?   ETA --:--" in unknown


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1.0 k"),
        (1234, "1.2 k"),
        (412_000, "412 k"),
        (3_100_000, "3.1 M"),
        (5e12, "5000 G"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(("span", "text"), [(None, "--:--"), (42, "00:42"), (3723, "1:02:03"), (300_000, "3 d")])
def test_clocks(span: float | None, text: str) -> None:
    assert clock(span) == text
