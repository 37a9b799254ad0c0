"""Parsing and formatting of sizes and times."""

import pytest

from penstock.spark.project.quantities import parse_size_bytes, parse_time_ms, show_bytes, show_ms


@pytest.mark.parametrize(
    ("text", "count"),
    [("2 GB", 2 << 30), ("512m", 512 << 20), ("1.5 KiB", 1536), ("100 b", 100), ("1TB", 1 << 40), (" 7 bytes ", 7)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("1 minute", 60_000), ("90s", 90_000), ("250 ms", 250), ("1.5 h", 5_400_000), ("2 days", 172_800_000)],
)
def test_times(text: str, span_ms: int) -> None:
    assert parse_time_ms(text) == span_ms


@pytest.mark.parametrize("text", ["", "5", "-1 s", "1 fortnight", "1 GB 2", "many"])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size_bytes(text)
    with pytest.raises(ValueError, match="expected a time"):
        parse_time_ms(text)


def test_shown() -> None:
    assert [show_bytes(count) for count in (0, 1023, 1536, 200 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KB",
        "200 MB",
        "3.0 TB",
    ]
    assert [show_ms(span) for span in (60_000, 90_000, 7_200_000, 250, 0)] == [
        "1 minute",
        "90 seconds",
        "2 hours",
        "250 ms",
        "0 ms",
    ]
