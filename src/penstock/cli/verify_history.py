"""The file in which a run keeps its history, and what may be concluded from it.

A run that came to its end says so by a last, empty poll of its own: by then fresh readers have read everything. Without
it the history was cut, and what nobody had read yet is no finding.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.cli.failing import Misused
from penstock.verify.check import check_lines
from penstock.verify.history import Event, HistoryError, read_history
from penstock.verify.recorder import Recorder
from penstock.verify.report import Report
from penstock.verify.rules import DEFAULT_RULES, Rules

SIGNATURE: Final = "by penstock verify"
"""How the client of a writer is called in the history of a run ends with this."""
RUN: Final = "verify"
"""The process that ends a history."""
FRESH: Final = ("fresh-0", "fresh-1")
"""Who reads everything anew in the end."""


class HistoryFile:
    """Takes lines; a disk that is full is told of in the end, since nobody hears it from a callback."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failure: OSError | None = None
        self._file = path.open("w", encoding="utf-8")

    def write(self, line: str) -> None:
        """One more."""
        if self._failure is None:
            try:
                self._file.write(line)
            except OSError as error:
                self._failure = error

    def close(self) -> None:
        """Everything is in the file, or Misused says why not."""
        try:
            self._file.close()
        except OSError as error:
            self._failure = self._failure or error
        if self._failure is not None:
            raise Misused(
                f"{self._path}: the history could not be written ({self._failure.strerror}), so nothing can be said: "
                "make room, or choose another place with --history"
            ) from self._failure


def end_history(recorder: Recorder) -> None:
    """All readers are through."""
    recorder.invoke(RUN, "poll").ok([])


def rules_for(history: Iterable[Event]) -> Rules:
    """What the run promised. A history that somebody else has recorded is taken to end with a full read."""
    is_ours = has_ended = False
    for event in history:
        is_ours = is_ours or (event.client or "").endswith(SIGNATURE)
        has_ended = has_ended or event.process == RUN
    if not is_ours:
        return DEFAULT_RULES
    return Rules(final_readers=frozenset(FRESH)) if has_ended else Rules(ends_with_full_read=False)


def judge(path: Path) -> tuple[Report, Rules]:
    """What the checker says, and by which rules."""
    try:
        with path.open(encoding="utf-8") as lines:
            rules = rules_for(read_history(lines))
        with path.open(encoding="utf-8") as lines:
            return check_lines(lines, rules), rules
    except HistoryError as error:
        raise Misused(f"{path} is no history, or a damaged one: {error}") from error
    except UnicodeDecodeError as error:
        raise Misused(f"{path} is no history: it is not text") from error
