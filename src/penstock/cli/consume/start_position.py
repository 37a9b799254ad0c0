"""Start positions of `consume`: start, end, an offset, a count before the end, or a time. Times for other commands."""

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.cli.errors import Misused

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Place(NamedTuple):
    """One of: a word ("earliest", "latest"), an offset (negative: before the end), a time in milliseconds."""

    word: str | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_place(text: str, now: datetime) -> Place:
    """Parses a position as people, kcat and rpk write it; a time without a zone is local."""
    match text.lower():
        case "start" | "beginning" | "earliest" | "oldest":
            return Place("earliest")
        case "end" | "latest" | "newest":
            return Place("latest")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return Place(offset=int(text))
    at_ms = _moment_ms(text, now)
    if at_ms is None:
        raise Misused(
            f"{text!r} is no place to start: start, end, 42 (an offset), -10 (the last ten), 15m (ago), "
            "2026-01-31T12:00 or @ and milliseconds"
        )
    return Place(timestamp_ms=at_ms)


def parse_time(text: str, now: datetime, option: str) -> int:
    """Parses a time into milliseconds, for an option that accepts only times."""
    at_ms = None if re.fullmatch(r"[0-9]+", text) else _moment_ms(text, now)
    if at_ms is None:
        raise Misused(f"{option} {text!r} is no time: 2026-01-31T12:00, 15m (ago), 2h, 3d, or @ and milliseconds")
    return at_ms


def _moment_ms(text: str, now: datetime) -> int | None:
    if found := re.fullmatch(r"([0-9]+)([smhd])(?:\s*ago)?", text.strip()):
        try:
            return _ms(now - timedelta(**{_UNITS[found[2]]: int(found[1])}))
        except OverflowError:
            return 0  # older than any record
    if found := re.fullmatch(r"(?:s@|@)([0-9]+)", text):
        return int(found[1])
    try:
        return _ms(datetime.fromisoformat(text.removeprefix("@")))
    except (ValueError, OverflowError):
        return None


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo is not None else moment.astimezone()).timestamp() * 1000)
