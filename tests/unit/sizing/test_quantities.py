"""Parsing of sizes, rates and times."""

import pytest

from penstock.sizing.quantities import parse_bytes, parse_rate, parse_seconds, show_bytes, shown


@pytest.mark.parametrize(
    ("text", "count"), [("100", 100), ("1000B", 1e3), ("64KiB", 65_536), ("500GB", 5e11), ("1.5 TB", 1.5e12)]
)
def test_sizes(text: str, count: float) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("text", "rate"), [("50MB/s", 5e7), ("1GB/s", 1e9), ("10Gbit/s", 1.25e9), ("1MiB/s", 2**20)])
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15min", 900), ("12h", 43_200), ("7d", 604_800)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0GB", "1XB", "8Gbit", "1GB/s"])
def test_what_is_no_size_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="64KiB, 500GB or 8TB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1GB", "1GB/h", "/s", "fast/s", "0MB/s"])
def test_what_is_no_rate_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="50MB/s, 1GB/s or 10Gbit/s"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["7", "7y", "d", "0d"])
def test_what_is_no_time_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="30s, 15min, 12h or 7d"):
        parse_seconds(text)


def test_figures_are_shown_with_three_digits() -> None:
    assert show_bytes(178_399_000) == "178 MB"
    assert shown(262e12, "B") == "262 TB"
    assert shown(1.25e9, "B/s") == "1.25 GB/s"
    assert shown(0.0456, "s") == "0.0456 s"
