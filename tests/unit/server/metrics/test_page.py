"""The metrics page: families, labels, histograms; counters that never go back."""

import random
from bisect import bisect_left

import pytest

from penstock.server.loop.timing import Timing
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.metrics.window import Window
from penstock.server.partitions.traffic import Traffic
from tests.unit.server.metrics.exposition import read

GAUGE = Metric("a_gauge", Kind.GAUGE, "Something that is so much.")
OTHER = Metric("other_total", Kind.COUNTER, "Something else.", ("topic",))
TIMES = Metric("took_seconds", Kind.HISTOGRAM, "How long it took.", ("request", "le"))


def text(page: Page) -> str:
    return b"".join(page.pieces()).decode()


def test_families_stand_together_whoever_fills_them() -> None:
    page = Page()
    page.family(OTHER).add(1, labels(topic="a"))
    page.family(GAUGE).add(0.5)
    page.family(OTHER).add(2, labels(topic="b"))
    told = read(text(page))
    assert told.kinds == {"other_total": "counter", "a_gauge": "gauge"}
    assert told.sum("other_total") == 3
    assert told.value("a_gauge") == 0.5


@pytest.mark.parametrize("name", ['with "quotes"', "back\\slash", "new\nline", "ordinary-name_1.2", "ünïcode", ""])
def test_labels_come_back_as_they_were(name: str) -> None:
    page = Page()
    page.family(OTHER).add(1, labels(topic=name))
    assert read(text(page)).labels("other_total", "topic") == [name]


def test_a_timing_counts_every_duration_in_its_bucket() -> None:
    chance, timing = random.Random(1), Timing()
    durations = [chance.expovariate(1) ** 8 for _ in range(10_000)] + [0.0, 1e-9, 100_000.0, 1e9]
    for each in durations:
        timing.note(each)
    durations.sort()
    page = Page()
    page.family(TIMES).add_timing(timing, request="Produce")
    told = read(text(page))
    assert told.value("took_seconds_count", request="Produce") == len(durations)
    assert told.value("took_seconds_sum", request="Produce") == pytest.approx(sum(durations))
    bounds = [(dict(key)["le"], count) for key, count in told.values["took_seconds_bucket"].items()]
    assert len(bounds) == 21
    for bound, count in bounds:
        assert count == bisect_left(durations, float(bound)), bound


def test_a_window_tells_of_the_last_half_minute_whoever_else_looks() -> None:
    lonely, busy = Window(0, 0), Window(0, 0)
    for second in range(1, 101):
        value = 10 * second if second <= 50 else 500 + 2 * (second - 50)
        for _ in range(3):
            rate = busy.per_second(value, 1000 * second)
        if second == 50:
            assert rate == 10
            assert lonely.per_second(value, 1000 * second) == 10
    assert rate == 2
    assert lonely.per_second(600, 100_000) == 2
    assert Window(5, 7).per_second(5, 7) == 0


def test_the_sum_never_goes_back_when_topics_do() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in += 10
    traffic.of("b").bytes_in += 5
    assert traffic.total().bytes_in == 15
    traffic.forget("a")
    traffic.forget("nobody")
    assert sorted(traffic.by_topic) == ["b"]
    assert traffic.total().bytes_in == 15
    traffic.of("a").bytes_in += 1
    assert traffic.total().bytes_in == 16
