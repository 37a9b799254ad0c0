"""`penstock group why`: shows the events of a group, how long rebalances took and partitions had no reader."""

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_groups
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client
from penstock.cli.output import Output, OutputOption, printable, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from penstock.client.admin.group_history import History
    from penstock.client.client import Client
    from penstock.model.group_events import GroupEvent

MISSING = (
    "These brokers tell of groups only in __consumer_offsets: who came and went follows from the members of each "
    "generation. Reasons and pauses are missing, as is whatever compaction has taken; who left and who timed out look "
    "alike."
)

LONG_ID = 16
"""Member ids of this length or more are not readable names, and are shortened."""
TAIL = 6
NARROWEST = 20
"""Lines are wrapped only if at least this many columns are left for the text."""


def why(
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups)],
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="2h, 3d (ago), or 2026-01-31T12:00.")] = "7d",
    count: Annotated[int, typer.Option("-n", "--num", min=1, help="Only the last so many events.")] = 200,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show why a group rebalanced, and what it cost.

    It names who joined, left or timed out, how long each rebalance took, and how long partitions went unread.

    TOOK is from what began a rebalance until every member had its share. PAUSE is the longest that a partition had no
    reader, as far as the coordinator knows: since it was given up, or since a lost member was last heard.
    """
    from datetime import UTC, datetime

    from penstock.cli.consume.start_position import parse_time

    since_ms = parse_time(since, datetime.now(UTC), "--since")

    async def work(client: "Client") -> "History":
        from penstock.client.admin.group_history import group_history

        found = await group_history(client.cluster, group, since_ms)
        if not found.events:
            await client.admin.describe_group(group)  # raises an error if the group does not exist
        return found

    found = run_with_client(bootstrap, timeout, work)
    events = found.events[-count:]
    if output is Output.JSON:
        show_json(
            {
                "group": group,
                "is_complete": found.is_told,
                "events_found": len(found.events),
                "events": [_as_json(each) for each in events],
            }
        )
        return
    width = _width()
    for line in _head(printable(group), found, len(events), since_ms):
        typer.echo(_wrapped(line, width))
    if events:
        typer.echo("\n" + "\n".join(_table(found.events, len(events), width)))
    if not found.is_told:
        typer.echo("\n" + _wrapped(MISSING, width))


def _width() -> int | None:
    """The width of the terminal; None if stdout is no terminal, where lines are not wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _as_json(event: "GroupEvent") -> dict[str, Any]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(event).items() if value is not None}


# --- the head ---------------------------------------------------------------------------------------------------------


def _head(group: str, found: "History", shown: int, since_ms: int) -> list[str]:
    """A summary of the whole requested time, and which part of it the table shows."""
    from penstock.model.group_events import EventKind

    events = found.events
    zone = _zone(events)
    since = _stamp(since_ms, zone)
    if not events:
        return [f"Nothing has happened to {group} since {since}."]
    done = [each for each in events if each.kind is EventKind.REBALANCE_DONE]
    out = sum(each.kind is EventKind.TIMED_OUT for each in events)
    late = f", {_count(out, 'member')} timed out" if out else ""
    going_on = ", one is going on" if found.is_told and _is_going_on(events) else ""
    lines = [f"{group}: {_count(len(done), 'rebalance')} since {since}{going_on}{late}."]
    lines += _meanings([each.took_ms for each in done], [each.pause_ms for each in done])
    part = f"all {len(events):,}" if shown == len(events) else f"the last {shown:,} of {len(events):,}"
    times = f"from {_stamp(events[-shown].at_ms, zone)} to {_stamp(events[-1].at_ms, zone)}"
    return [*lines, f"Shown: {part} events, {times}."]


def _is_going_on(events: "Sequence[GroupEvent]") -> bool:
    """Whether a rebalance has begun whose end its coordinator has not reported yet."""
    from penstock.model.group_events import EventKind

    turns = (EventKind.REBALANCE_BEGUN, EventKind.REBALANCE_DONE, EventKind.COORDINATOR_CHANGED)
    kinds = [each.kind for each in events if each.kind in turns]
    return kinds[-1:] == [EventKind.REBALANCE_BEGUN]


def _meanings(took: "Sequence[int | None]", pauses: "Sequence[int | None]") -> list[str]:
    from penstock.cli.group.lag import behind

    lines = []
    if known := [each for each in took if each is not None]:
        most, all_ = behind(max(known) / 1000), behind(sum(known) / 1000)
        lines.append(f"TOOK: from what began it until every member had its share; {most} at most, {all_} together.")
    if known := [each for each in pauses if each is not None]:
        lines.append(f"PAUSE: the longest that a partition had no reader; {behind(max(known) / 1000)} at most.")
    return lines


def _zone(events: "Sequence[GroupEvent]") -> "tzinfo | None":
    """One time zone for all times, so that none is repeated or skipped when daylight saving time changes."""
    from datetime import datetime

    newest = datetime.fromtimestamp(events[-1].at_ms / 1000) if events else datetime.now()
    return newest.astimezone().tzinfo


def _stamp(at_ms: int, zone: "tzinfo | None") -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at_ms / 1000, zone).strftime("%Y-%m-%d %H:%M:%S %z")


# --- the table --------------------------------------------------------------------------------------------------------


def _table(events: "Sequence[GroupEvent]", shown: int, width: int | None) -> list[str]:
    """The last `shown` events. The description is the last column, and is wrapped if the line is too long."""
    names = _names(events)
    first = len(events) - shown
    last = events[-shown:]
    times = _times(last)
    rows = [("TIME", "EPOCH", "MEMBERS", "TOOK", "PAUSE", "WHAT")]
    for number, event in enumerate(last):
        before = events[first + number - 1] if first + number else None
        what = printable(_what(event, before, names))
        numbers = (_number(event.epoch), _number(event.members), _seconds(event.took_ms), _seconds(event.pause_ms))
        rows.append((times[number], *numbers, what))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [line for row in rows for line in _lines(row, widths, width)]


def _lines(row: tuple[str, ...], widths: list[int], width: int | None) -> list[str]:
    cells = [row[0].ljust(widths[0]), *(text.rjust(each) for text, each in zip(row[1:-1], widths[1:], strict=True))]
    start = "  ".join([*cells, ""])
    return _wrapped(row[-1], width, start).split("\n")


def _wrapped(text: str, width: int | None, start: str = "") -> str:
    """`text` after `start`, wrapped to the width; one line if the width is None or too small."""
    if width is None or width < len(start) + NARROWEST:
        return (start + text).rstrip()
    import textwrap

    return textwrap.fill(text, width, initial_indent=start, subsequent_indent=" " * len(start)) or start.rstrip()


def _times(events: "Sequence[GroupEvent]") -> list[str]:
    """The times of events, without the date if it is the same for all: the head shows it."""
    from datetime import datetime

    zone = _zone(events)
    found = [datetime.fromtimestamp(each.at_ms / 1000, zone) for each in events]
    form = "%H:%M:%S" if len({each.date() for each in found}) == 1 else "%m-%d %H:%M:%S"
    return [f"{at.strftime(form)}.{event.at_ms % 1000:03d}" for at, event in zip(found, events, strict=True)]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _seconds(value_ms: int | None) -> str:
    from penstock.cli.group.lag import behind

    return "" if value_ms is None else behind(value_ms / 1000)


# --- wording ----------------------------------------------------------------------------------------------------------


def _what(event: "GroupEvent", before: "GroupEvent | None", names: dict[str, str]) -> str:
    from penstock.model.group_events import EventKind

    reason = _shortened(event.reason or "", names)
    if event.kind is EventKind.COORDINATOR_CHANGED:
        return _coordinator(event.broker, None if before is None else before.broker)
    if event.kind is EventKind.CONVERTED:
        return reason
    what = event.kind.value.replace("-", " ")
    if event.member is not None and event.kind is not EventKind.REBALANCE_BEGUN:
        where = f" from {event.host.lstrip('/')}" if event.kind is EventKind.JOINED and event.host else ""
        what = f"{names[event.member]} {'was ' * (event.kind is EventKind.FENCED)}{what}{where}"
    return f"{what}: {reason}" if reason else what


def _coordinator(broker: int | None, before: int | None) -> str:
    if before is None:
        return f"broker {broker} coordinates it now"
    if before == broker:
        return f"broker {broker} coordinates it again, after a restart or an election"
    return f"broker {broker} coordinates it now, broker {before} does no longer"


def _names(events: "Sequence[GroupEvent]") -> dict[str, str]:
    """Readable names of members: instance or client id, with the end of the member id where several share it."""
    known: dict[str, str] = {}
    for event in events:
        if event.member is not None:
            is_short = len(event.member) < LONG_ID
            known[event.member] = event.instance or (event.member if is_short else event.client_id or event.member)
    count = Counter(known.values())
    return {member: name if count[name] == 1 else f"{name}…{member[-TAIL:]}" for member, name in known.items()}


def _shortened(text: str, names: dict[str, str]) -> str:
    for member, name in names.items():
        if len(member) >= LONG_ID:
            text = text.replace(member, name)
    return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
