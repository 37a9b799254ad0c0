"""Formats the log of a node: a line of text or a JSON object per entry, with the time in UTC.

Entries that a core has reported carry their event's stable name and its fields; docs/operating/logs.md lists them.
"""

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Final

from penstock.cli.serve.log_format import LogFormat


def write_log(level: int, log_format: LogFormat) -> None:
    """Directs entries of this level and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    logging.basicConfig(level=level, handlers=[handler])


def _time(entry: logging.LogRecord) -> str:
    return datetime.fromtimestamp(entry.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Escaped in text, because clients choose the names of groups and members, and must not forge lines."""


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class TextLines(logging.Formatter):
    """`2026-01-01T12:00:00.000Z INFO quorum: Leads the metadata quorum in epoch 7. [quorum-leader]`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        event = getattr(record, "event", None)
        name = record.name.removeprefix("penstock.")
        line = f"{_time(record)} {record.levelname} {name}: {_CONTROL.sub(_escaped, record.getMessage())}"
        if event is not None:
            line += f" [{event}]"
        return f"{line}\n{_traceback(record)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """An object with time, level, logger, event, message, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields:
            entry["fields"] = fields
        if record.exc_info:
            entry["traceback"] = _traceback(record)
        return json.dumps(entry, ensure_ascii=False)


def _traceback(record: logging.LogRecord) -> str:
    assert record.exc_info
    return "".join(traceback.format_exception(*record.exc_info)).rstrip()
