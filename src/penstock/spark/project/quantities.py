"""Sizes and times as people write them: `2 GB`, `512m`, `1 minute`, `90s`. A kilobyte is 1024 bytes."""

import re

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SHIFT = {"b": 0, "bytes": 0} | {
    letter + rest: shift for letter, shift in {"k": 10, "m": 20, "g": 30, "t": 40}.items() for rest in ("", "b", "ib")
}
_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def parse_size_bytes(text: str) -> int:
    """Parses a size into bytes; the ValueError says what was expected."""
    return _parse(text, _SHIFT_FACTORS, "a size such as 512 MB or 2 GB")


def parse_time_ms(text: str) -> int:
    """Parses a time into milliseconds; the ValueError says what was expected."""
    return _parse(text, _MS, "a time such as 10 seconds or 1 minute")


def show_bytes(count: float) -> str:
    """A size with its unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def show_ms(span_ms: int) -> str:
    """A time in the largest unit that is exact."""
    for unit, factor in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if span_ms and span_ms % factor == 0:
            count = span_ms // factor
            return f"{count} {unit}{'s' * (count != 1)}"
    return f"{span_ms} ms"


_SHIFT_FACTORS = {unit: 1 << shift for unit, shift in _SHIFT.items()}


def _parse(text: str, factors: dict[str, int], expected: str) -> int:
    found = _NUMBER.fullmatch(text)
    factor = None if found is None else factors.get(found[2].lower())
    if found is None or factor is None:
        raise ValueError(f"expected {expected}, with its unit, not {text!r}")
    return int(float(found[1]) * factor)
