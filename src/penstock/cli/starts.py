"""Where `consume` begins: start, end, an offset, so many before the end, or a moment in time."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from penstock.cli.failing import Misused

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Place(NamedTuple):
    """One of: a word ("earliest", "latest"), an offset (negative: before the end), a time in milliseconds."""

    word: str | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_place(text: str, now: datetime) -> Place:
    """Reads what people, kcat and rpk write; a time without a zone is local."""
    match text.lower():
        case "start" | "beginning" | "earliest" | "oldest":
            return Place("earliest")
        case "end" | "latest" | "newest":
            return Place("latest")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return Place(offset=int(text))
    if found := re.fullmatch(r"([0-9]+)([smhd])(?:\s*ago)?", text.strip()):
        return _at(now - timedelta(**{_UNITS[found[2]]: int(found[1])}))
    if found := re.fullmatch(r"(?:s@|@)([0-9]+)", text):
        return Place(timestamp_ms=int(found[1]))
    try:
        return _at(datetime.fromisoformat(text.removeprefix("@")))
    except ValueError:
        raise Misused(
            f"{text!r} is no place to start: start, end, 42 (an offset), -10 (the last ten), 15m (ago), "
            "2026-01-31T12:00 or @ and milliseconds"
        ) from None


def _at(moment: datetime) -> Place:
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    return Place(timestamp_ms=int(aware.astimezone(UTC).timestamp() * 1000))
