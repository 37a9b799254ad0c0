"""Times two pieces of code against each other, interleaved, because a shared machine drifts.

A row prints both absolute figures and their ratio. The best of many short rounds is taken: noise only adds time.
"""

import gc
import json
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

ROUNDS = 30
ROUND_NS = 4_000_000


class Row(NamedTuple):
    name: str
    ours_us: float
    other_us: float
    other: str
    limit_us: float | None

    @property
    def ratio(self) -> float:
        return self.ours_us / self.other_us

    def __str__(self) -> str:
        limit = "" if self.limit_us is None else f"  limit {self.limit_us:,.0f} µs"
        verdict = "" if self.limit_us is None else ("  ok" if self.ours_us <= self.limit_us else "  MISSED")
        return (
            f"{self.name:<46} {self.ours_us:>10.2f} µs   {self.other}: {self.other_us:>10.2f} µs"
            f"   ratio {self.ratio:>6.3f}{limit}{verdict}"
        )


def _repeats(function: Callable[[], object]) -> int:
    """The number of calls that fit in one round."""
    started = perf_counter_ns()
    function()
    return max(1, ROUND_NS // max(1, perf_counter_ns() - started))


def _round(function: Callable[[], object], repeats: int) -> float:
    started = perf_counter_ns()
    for _ in range(repeats):
        function()
    return (perf_counter_ns() - started) / repeats / 1000


def compare(
    name: str, ours: Callable[[], object], other: Callable[[], object], other_name: str, limit_us: float | None = None
) -> Row:
    """Times `ours` and `other` in alternating rounds; returns one row."""
    ours(), other()  # warm: compile, cache, specialise
    ours_repeats, other_repeats = _repeats(ours), _repeats(other)
    ours_us = other_us = float("inf")
    gc.disable()
    try:
        for _ in range(ROUNDS):
            ours_us = min(ours_us, _round(ours, ours_repeats))
            other_us = min(other_us, _round(other, other_repeats))
    finally:
        gc.enable()
    return Row(name, ours_us, other_us, other_name, limit_us)


def report(rows: list[Row]) -> None:
    """Prints rows as text, or as JSON lines with `--json`."""
    for row in rows:
        if "--json" in sys.argv:
            print(json.dumps(row._asdict() | {"ratio": round(row.ratio, 4)}))
        else:
            print(row)
