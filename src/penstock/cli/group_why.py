"""`penstock group why`: what happened to a group, and how long it kept its members waiting."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failing import Misused
from penstock.cli.output import Output, OutputOption, show_json, table_text
from penstock.cli.running import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.group_history import History
    from penstock.model.group_events import GroupEvent

MISSING = (
    "These brokers tell of groups only in __consumer_offsets: who came and went follows from the members of each "
    "generation. Reasons and pauses are missing, as is whatever compaction has taken; who left and who timed out look "
    "alike."
)


def why(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="2h, 3d (ago), or 2026-01-31T12:00.")] = "7d",
    count: Annotated[int, typer.Option("-n", "--num", min=1, help="Only the last so many events.")] = 200,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show why a group rebalanced: who joined, left or timed out, when, and how long each pause took."""
    from datetime import UTC, datetime

    from penstock.cli.starts import parse_place

    since_ms = parse_place(since, datetime.now(UTC)).timestamp_ms
    if since_ms is None:
        raise Misused(f"--since {since!r} is no time: 2h (ago), 3d, 2026-01-31T12:00")

    async def work(client: "Client") -> "History":
        from penstock.client.group_history import group_history

        found = await group_history(client.cluster, group, since_ms)
        if not found.events:
            await client.admin.describe_group(group)  # a group that is not there is told as such
        return found

    found = run_with_client(bootstrap, timeout, work)
    events = found.events[-count:]
    if output is Output.JSON:
        show_json({"group": group, "is_complete": found.is_told, "events": [_as_json(each) for each in events]})
        return
    typer.echo(_summary(group, found), nl=False)
    if events:
        typer.echo(table_text([_row(each) for each in events]), nl=False)
    if not found.is_told:
        typer.echo(f"\n{MISSING}")


def _as_json(event: "GroupEvent") -> dict[str, Any]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(event).items() if value is not None}


def _summary(group: str, found: "History") -> str:
    from penstock.cli.group_lag import behind
    from penstock.model.group_events import EventKind

    if not found.events:
        return f"Nothing has happened to {group} in this time.\n"
    done = [each for each in found.events if each.kind is EventKind.REBALANCE_DONE]
    pauses = [each.pause_ms for each in done if each.pause_ms is not None]
    if not found.is_told:
        return f"{group}: {_count(len(found.events), 'event')}.\n\n"
    longest = (
        f", the longest of {behind(max(pauses) / 1000)}, all together {behind(sum(pauses) / 1000)}" if pauses else ""
    )
    out = sum(each.kind is EventKind.TIMED_OUT for each in found.events)
    late = f"; {_count(out, 'member')} timed out" if out else ""
    return f"{group}: {_count(len(done), 'rebalance')}{longest}{late}.\n\n"


def _row(event: "GroupEvent") -> dict[str, Any]:
    from penstock.cli.group_lag import behind

    return {
        "time": _clock(event.at_ms),
        "event": event.kind.value,
        "epoch": "-" if event.epoch is None else str(event.epoch),
        "members": "-" if event.members is None else str(event.members),
        "pause": "-" if event.pause_ms is None else behind(event.pause_ms / 1000),
        "who": _who(event),
        "why": event.reason or ("" if event.broker is None else f"broker {event.broker} coordinates it now"),
    }


def _who(event: "GroupEvent") -> str:
    if event.member is None:
        return ""
    name = event.instance or event.member
    return f"{name} ({event.client_id} at {(event.host or '?').lstrip('/')})"


def _clock(at_ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
