"""The history file of a run, and the rules for checking it.

A complete run ends its history with an empty poll of its own process: by then fresh readers have read everything.
Without this poll the history is truncated, and a record that was not read yet is no finding.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.cli.errors import Misused
from penstock.verify.check import check_lines
from penstock.verify.history import Event, HistoryError, read_history
from penstock.verify.recorder import Recorder
from penstock.verify.report import Report
from penstock.verify.rules import DEFAULT_RULES, Rules

SIGNATURE: Final = "by penstock verify"
"""The end of the client names of writers in the history of a run."""
RUN: Final = "verify"
"""The process that ends a history."""
FRESH: Final = ("fresh-0", "fresh-1")
"""The readers that read everything again at the end."""


class HistoryFile:
    """Writes lines; an error, such as a full disk, is raised by `close`, since callbacks cannot raise it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failure: OSError | None = None
        self._file = path.open("w", encoding="utf-8")

    def write(self, line: str) -> None:
        """Writes one line."""
        if self._failure is None:
            try:
                self._file.write(line)
            except OSError as error:
                self._failure = error

    def close(self) -> None:
        """Closes the file; raises Misused if not everything could be written."""
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
    """Marks the history as complete, when all readers are done."""
    recorder.invoke(RUN, "poll").ok([])


def rules_for(history: Iterable[Event]) -> Rules:
    """The rules for a history. A history of another recorder is assumed to end with a full read."""
    is_ours = has_ended = False
    for event in history:
        is_ours = is_ours or (event.client or "").endswith(SIGNATURE)
        has_ended = has_ended or event.process == RUN
    if not is_ours:
        return DEFAULT_RULES
    return Rules(final_readers=frozenset(FRESH)) if has_ended else Rules(ends_with_full_read=False)


def judge(path: Path) -> tuple[Report, Rules]:
    """The checker's report on a history, and the rules that were applied."""
    try:
        with path.open(encoding="utf-8") as lines:
            rules = rules_for(read_history(lines))
        with path.open(encoding="utf-8") as lines:
            return check_lines(lines, rules), rules
    except HistoryError as error:
        raise Misused(f"{path} is no history, or a damaged one: {error}") from error
    except UnicodeDecodeError as error:
        raise Misused(f"{path} is no history: it is not text") from error
