"""Logs the reports of cores: one line each, or one line for simultaneous reports of one kind.

Invariant: a broker that takes over a thousand partitions logs some lines, not a thousand.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.model.report import NAMED_MAX, Kind, Report, Value

GATHERED_S: Final = 0.25
"""Time for which a report is held, to be logged in one line with others of its kind."""
SENTENCE_MAX: Final = 1_000

Alike: TypeAlias = tuple[Value, ...]


class Reporter:
    """Writes reports to one logger."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._gathered: dict[Alike, list[Report]] = {}

    def tell(self, report: Report) -> None:
        """Logs a report, at once or within GATHERED_S."""
        kind = report.kind
        if not self._logger.isEnabledFor(kind.level):
            return
        if kind.of_each is None:
            self._log(report, report.sentence)
            return
        alike = (kind.name, *(report.fields[name] for name in kind.alike))
        waiting = self._gathered.setdefault(alike, [])
        waiting.append(report)
        if len(waiting) == 1:
            asyncio.get_running_loop().call_later(GATHERED_S, self._flush, kind, alike)

    def _flush(self, kind: Kind, alike: Alike) -> None:
        waiting = self._gathered.pop(alike)
        first = waiting[0]
        others = [str(each.fields[kind.of_each or ""]) for each in waiting[1:]]
        sentence = first.sentence
        if others:
            named = ", ".join(others[:NAMED_MAX])
            more = len(others) - NAMED_MAX
            sentence += f" Likewise: {named}" + (f" and {more} more." if more > 0 else ".")
        self._log(first, sentence, len(waiting))

    def _log(self, report: Report, sentence: str, count: int = 1) -> None:
        if len(sentence) > SENTENCE_MAX:  # clients choose names of groups and members
            sentence = f"{sentence[:SENTENCE_MAX]}…"
        fields = dict(report.fields) if count == 1 else {**report.fields, "count": count}
        self._logger.log(report.kind.level, "%s", sentence, extra={"event": report.kind.name, "fields": fields})


def tell_by(logger: logging.Logger) -> Callable[[Report], None]:
    """The function that logs reports, for a table of effects."""
    return Reporter(logger).tell
