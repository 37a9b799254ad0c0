"""Progress is shown for long jobs on a terminal; short jobs and jobs without a terminal print nothing."""

import pytest

from penstock.cli import progress
from penstock.cli.progress import STEP, ByteBar, Counter, bytes_text, pace_text, seconds_text


def test_numbers_in_words() -> None:
    assert [bytes_text(each) for each in (12, 1500, 2_500_000, 7e9, 3e12)] == [
        "12 B",
        "1.5 kB",
        "2.5 MB",
        "7.0 GB",
        "3.0 TB",
    ]
    assert [seconds_text(each) for each in (5, 200, 7300)] == ["5 s", "3 min 20 s", "2 h 1 min"]
    assert pace_text(2e6, 90) == "2.0 MB/s, 1 min 30 s left"
    assert pace_text(0, None) == "nothing is copied at the moment"


def test_a_bar_tells_how_much_how_fast_and_how_long(capfd: pytest.CaptureFixture[str]) -> None:
    with ByteBar("copied", is_shown=True) as bar:
        bar.show(0, 100_000_000, 0, None)
        bar.show(50_000_000, 100_000_000, 2e6, 25)
    said = capfd.readouterr().err
    assert "50%" in said
    assert "2.0 MB/s, 25 s left" in " ".join(said.split())
    with ByteBar("copied", is_shown=False) as bar:
        bar.show(50_000_000, 100_000_000, 2e6, 25)
    assert capfd.readouterr().err == ""


def test_a_counter_ends_with_what_it_counted_last(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    with Counter("to orders", 10 * STEP, is_shown=True) as counter:
        counter.add(STEP)
        counter.add(1, done=8 * STEP)
    said = " ".join(capfd.readouterr().err.split())
    assert f"{STEP + 1} records to orders" in said
    assert "90%" in said


@pytest.mark.parametrize(("patience_s", "is_shown"), [(60.0, True), (-1.0, False)])
def test_a_counter_is_silent_when_it_is_soon_over_and_when_nobody_watches(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, patience_s: float, is_shown: bool
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    with Counter("to orders", is_shown=is_shown) as counter:
        counter.add(STEP)
    assert (counter.count, capfd.readouterr().err) == (STEP, "")
