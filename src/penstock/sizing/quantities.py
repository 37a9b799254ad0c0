"""Parses and formats sizes, rates and times: 64KiB, 1GB/s, 10Gbit/s, 7d. Units are powers of ten unless with an i."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


def parse_bytes(text: str) -> float:
    """Parses a size in bytes; raises ValueError with the expected format."""
    number, unit = _parts(text, "a size is written as 64KiB, 500GB or 8TB")
    scale = _scale(unit.removesuffix("B").removesuffix("b"))
    if scale is None or unit.lower().endswith("bit"):
        raise ValueError(f"{text!r} is no size: it is written as 64KiB, 500GB or 8TB")
    return number * scale


def parse_rate(text: str) -> float:
    """Parses a rate in bytes per second; raises ValueError with the expected format."""
    how = f"{text!r} is no rate: it is written as 50MB/s, 1GB/s or 10Gbit/s"
    amount, slash, per = text.strip().partition("/")
    if not slash or per.strip() not in ("s", "sec", "second"):
        raise ValueError(how)
    number, unit = _parts(amount, how)
    is_bits = unit.lower().endswith("bit")
    scale = _scale(unit[:-3] if is_bits else unit.removesuffix("B"))
    if scale is None:
        raise ValueError(how)
    return number * scale / (8 if is_bits else 1)


def parse_seconds(text: str) -> float:
    """Parses a time in seconds; raises ValueError with the expected format."""
    number, unit = _parts(text, "a time is written as 30s, 15min, 12h or 7d")
    if unit.lower() not in _SECONDS:
        raise ValueError(f"{text!r} is no time: it is written as 30s, 15min, 12h or 7d")
    return number * _SECONDS[unit.lower()]


def _parts(text: str, how: str) -> tuple[float, str]:
    found = _NUMBER.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise ValueError(how if repr(text) in how else f"{text!r}: {how}, and is more than nothing")
    return float(found[1]), found[2]


def _scale(prefix: str) -> int | None:
    return _PREFIXES.get(prefix.lower(), _BINARY.get(prefix.lower()))


def show_bytes(count: float) -> str:
    """Formats a size with three digits and a unit."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{short(count / size)} {unit}"
    return f"{count:,.0f} B"


def short(number: float) -> str:
    """Formats a number with about three significant digits."""
    if number >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}" if number < 10 else f"{number:.1f}"


def shown(value: float, unit: str) -> str:
    """Formats a figure with its unit."""
    match unit:
        case "B":
            return show_bytes(value)
        case "B/s":
            return f"{show_bytes(value)}/s"
    return f"{short(value)} {unit}".rstrip()
