"""Derives the part of the logs to read from Spark's filters. It may be too wide: Spark applies the filters again.

Topic, partition and offset are bounded at both ends, timestamps only at the lower end: timestamps may decrease within
a log, and a broker only reports the offset before which all records are older.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.spark.plan import OFFSET_END, Cuts


def cuts_of(filters: Iterable[Filter]) -> Cuts:
    """The bounds that all filters give together."""
    cuts = Cuts()
    for each in filters:
        match each:
            case EqualTo(attribute=(name,), value=value) | EqualNullSafe(attribute=(name,), value=value):
                _cut(cuts, name, [value])
            case In(attribute=(name,), value=values):
                _cut(cuts, name, list(values))
            case GreaterThan(attribute=(name,), value=value):
                _cut_below(cuts, name, value, 1)
            case GreaterThanOrEqual(attribute=(name,), value=value):
                _cut_below(cuts, name, value, 0)
            case LessThan(attribute=("offset",), value=value):
                cuts.end = min(cuts.end, value)
            case LessThanOrEqual(attribute=("offset",), value=value):
                cuts.end = min(cuts.end, value + 1)
    return cuts


def _cut(cuts: Cuts, name: str, values: list[Any]) -> None:
    found = [value for value in values if value is not None]
    match name:
        case "topic":
            cuts.topics = _both(cuts.topics, found)
        case "partition":
            cuts.numbers = _both(cuts.numbers, found)
        case "offset":
            cuts.first = max(cuts.first, min(found, default=OFFSET_END))
            cuts.end = min(cuts.end, max(found, default=-1) + 1)
        case "timestamp" if found:
            _cut_below(cuts, name, min(found), 0)


def _cut_below(cuts: Cuts, name: str, value: Any, step: int) -> None:
    if name == "offset":
        cuts.first = max(cuts.first, value + step)
    elif name == "timestamp" and isinstance(value, datetime):
        cuts.since_ms = max(cuts.since_ms or 0, int(value.timestamp() * 1000))


def _both(one: Collection[Any] | None, other: list[Any]) -> Collection[Any]:
    return set(other) if one is None else set(one) & set(other)
