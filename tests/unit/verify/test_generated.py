"""No false alarms: a correct log with any behaviour of clients and any faults yields no findings."""

import io

import pytest

from penstock.verify.check import check, check_lines
from penstock.verify.history import line_of
from penstock.verify.rules import Rules
from tests.unit.verify.generated import clean_history, clean_pipeline


@pytest.mark.parametrize("seed", range(100))
def test_a_clean_history_raises_no_alarm(seed: int) -> None:
    history, rules = clean_history(seed)
    report = check(history, rules)
    assert report.is_clean, report.text()
    assert not report.notes, report.text()
    assert report.counts.records_acked > 100
    assert report.counts.transactions == 75
    assert report.counts.failed > 5
    assert report.counts.unknown > 5


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_pipeline_raises_no_alarm(seed: int) -> None:
    history, rules = clean_pipeline(seed)
    report = check(history, rules)
    assert report.is_clean, report.text()
    assert not report.notes, report.text()


def test_the_way_through_text_changes_nothing() -> None:
    history, rules = clean_history(7)
    text = io.StringIO("".join(map(line_of, history)))
    assert check_lines(text, rules).as_dict() == check(history, rules).as_dict()


def test_a_history_may_end_anywhere() -> None:
    """A cut can hide an anomaly, but causes none."""
    for seed in range(10):
        history, _ = clean_history(seed)
        for end in range(seed, len(history), 97):
            report = check(history[:end], Rules(ends_with_full_read=False))
            assert report.is_clean, report.text()
