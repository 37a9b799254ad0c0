"""`penstock group lag`: how far groups are behind, in records and in seconds, once or live."""

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Output, OutputOption, show_json, table_text
from penstock.cli.running import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.groups import GroupDescription

CLEAR = "\x1b[H\x1b[2J"


def lag(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP...]", help="Without any: a line for every group.")
    ] = None,
    topics: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Only this topic; repeatable.")] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 2.0,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show how far groups are behind, in records and in seconds: the age of the first record that was not consumed.

    The seconds are read from that record itself, so they count when nobody writes any more, too.
    """

    async def work(client: "Client") -> None:
        async for found in _looks(client, names or [], topics or [], interval if watch else None):
            if output is Output.JSON:
                _show_json(found, is_line=watch)
            elif watch and sys.stdout.isatty():
                sys.stdout.write(CLEAR + "".join(_lines(found, is_one_line=not names)))
            else:
                sys.stdout.write("".join(_lines(found, is_one_line=not names)))
            sys.stdout.flush()

    try:
        run_with_client(bootstrap, timeout, work)
    except KeyboardInterrupt:
        if not watch:
            raise


async def _looks(
    client: "Client", names: list[str], topics: list[str], pause_s: float | None
) -> AsyncIterator[list[dict[str, Any]]]:
    import asyncio

    while True:
        groups = names or [each.group_id for each in await client.admin.list_groups()]
        yield [await look(client, group, topics) for group in groups]
        if pause_s is None:
            return
        await asyncio.sleep(pause_s)


async def look(client: "Client", group: str, topics: list[str]) -> dict[str, Any]:
    """One group, as JSON shows it."""
    from penstock.client import lag as lags

    described = await client.admin.describe_group(group)
    committed = await client.admin.group_offsets(group)
    chosen = {each: offset for each, offset in committed.items() if not topics or each.topic in topics}
    found = await lags.lag(client.cluster, chosen)
    readers = _readers(described)
    records, seconds = lags.total(found)
    unread = sorted(each for each in readers if each not in committed and (not topics or each.topic in topics))
    return {
        "group": group,
        "state": described.state,
        "type": described.type,
        "members": len(described.members),
        "lag": records,
        "lag_s": seconds,
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "end": each.log_end,
                "lag": each.records,
                "lag_s": each.seconds,
                "oldest_ms": each.oldest_ms,
                "member": readers.get(each.partition),
                "note": each.note,
            }
            for each in found
        ],
        "uncommitted": [{"topic": each.topic, "partition": each.partition} for each in unread],
    }


def _readers(described: "GroupDescription") -> dict[Any, str]:
    return {
        partition: member.instance_id or member.client_id
        for member in described.members
        for partition in member.assignment
    }


def _show_json(found: list[dict[str, Any]], *, is_line: bool) -> None:
    if is_line:
        import json

        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        show_json(found)


def _lines(found: list[dict[str, Any]], *, is_one_line: bool) -> list[str]:
    if is_one_line:
        rows = [
            {
                "group": each["group"],
                "state": each["state"],
                "members": each["members"],
                "lag": each["lag"],
                "behind": behind(each["lag_s"]),
            }
            for each in found
        ]
        return [table_text(rows)] if rows else ["There are no groups.\n"]
    return ["\n".join(_of_group(each) for each in found)]


def _of_group(group: dict[str, Any]) -> str:
    head = f"{group['group']}: {group['state']}, {_count(group['members'], 'member')}, {summary(group)}.\n"
    rows = [
        {
            "topic": each["topic"],
            "partition": each["partition"],
            "committed": each["committed"],
            "end": each["end"],
            "lag": each["lag"],
            "behind": behind(each["lag_s"]),
            "reader": each["member"],
            "note": each["note"] or "",
        }
        for each in group["partitions"]
    ]
    text = head + (table_text(rows) if rows else "Nothing is committed.\n")
    if group["uncommitted"]:
        places = ", ".join(f"{each['topic']}[{each['partition']}]" for each in group["uncommitted"])
        text += f"Read, but nothing committed yet: {places}.\n"
    return text


def summary(group: dict[str, Any]) -> str:
    """`12 records and 3.4 s behind`."""
    if not group["lag"]:
        return "at the end" if group["partitions"] else "nothing committed"
    return f"{_count(group['lag'], 'record')} and {behind(group['lag_s'])} behind"


def behind(seconds: float | None) -> str:
    """In the units that people would choose; exact below a minute."""
    from penstock.cli.progress import seconds_text

    if seconds is None:
        return "?"
    return f"{seconds:.1f} s" if seconds < 60 else seconds_text(seconds)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
