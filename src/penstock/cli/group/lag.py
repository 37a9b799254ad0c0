"""`penstock group lag`: shows the lag of groups, in records and in seconds, once or live."""

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.connection.completion import complete_groups, complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client
from penstock.cli.errors import Failed
from penstock.cli.output import Output, OutputOption, Quantity, json_text, printable, show_json, table_text

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupDescription
    from penstock.client.admin.lag import Bounds, PartitionLag
    from penstock.client.client import Client
    from penstock.client.metadata import TopicPartition

CLEAR = "\x1b[H\x1b[2J"
NO_GROUPS = "There are no groups: a consumer with group.id makes one."
UNKNOWN = Quantity("?")
NOTHING = Quantity("-")


def lag(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP...]", help="Without any: a line for every group.", autocompletion=complete_groups
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", help="Only this topic; repeatable.", autocompletion=complete_topics),
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 2.0,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show how far groups are behind, in records and seconds.

    The seconds are the age of the first record that was not consumed. They are read from that record itself, so they
    grow when nobody writes any more, too.
    """

    async def work(client: "Client") -> None:
        await _check_topics(client, topics or [])
        async for found in _looks(client, names or [], topics or [], interval if watch else None):
            if output is Output.JSON:
                _show_json(found, is_line=watch)
            else:
                if watch:
                    sys.stdout.write((CLEAR if sys.stdout.isatty() else "") + _heading(interval))
                _show_tables(found, is_one_line=not names)
            sys.stdout.flush()

    try:
        run_with_client(bootstrap, timeout, work)
    except KeyboardInterrupt:
        if not watch:
            raise


async def _check_topics(client: "Client", topics: list[str]) -> None:
    from penstock.model.errors import ErrorCode

    refused = await client.cluster.refresh(topics) if topics else {}
    for topic, code in refused.items():
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failed(f"there is no topic {printable(topic)}: `penstock topic list` shows what there is")


async def _looks(
    client: "Client", names: list[str], topics: list[str], pause_s: float | None
) -> AsyncIterator[list[dict[str, Any]]]:
    import asyncio

    while True:
        yield await look(client, names, topics) if names else worst_first(await look_at_all(client, topics))
        if pause_s is None:
            return
        await asyncio.sleep(pause_s)


async def look_at_all(client: "Client", topics: list[str]) -> list[dict[str, Any]]:
    """The lag of every group. A group that is deleted meanwhile is skipped."""
    from penstock.client.errors import Refused
    from penstock.model.errors import ErrorCode

    seen = []
    for listed in await client.admin.list_groups():
        try:
            seen.append(await _see(client, listed.group_id, topics))
        except Refused as refused:
            if refused.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return await _measured(client, seen)


async def look(client: "Client", groups: list[str], topics: list[str]) -> list[dict[str, Any]]:
    """The lag of these groups, as the JSON output shows it."""
    return await _measured(client, [await _see(client, group, topics) for group in groups])


class _Seen(NamedTuple):
    """A group, as its coordinator reports it."""

    described: "GroupDescription"
    committed: "dict[TopicPartition, int]"
    readers: "dict[TopicPartition, str]"


async def _see(client: "Client", group: str, topics: list[str]) -> _Seen:
    described = await client.admin.describe_group(group)
    committed = await client.admin.group_offsets(group)
    readers = _readers(described)
    return _Seen(
        described,
        {each: offset for each, offset in committed.items() if not topics or each.topic in topics},
        {each: reader for each, reader in readers.items() if not topics or each.topic in topics},
    )


async def _measured(client: "Client", seen: list[_Seen]) -> list[dict[str, Any]]:
    """Queries the logs of all groups together, so that an unreachable log is waited for once and not per group."""
    from penstock.client.admin.lag import bounds_now

    bounds = await bounds_now(client.cluster, (place for each in seen for place in each.committed))
    return [await _of_bounds(client, each, bounds) for each in seen]


async def _of_bounds(client: "Client", seen: _Seen, bounds: "dict[TopicPartition, Bounds | str]") -> dict[str, Any]:
    from penstock.client.admin import lag as lags

    described, committed, readers = seen
    known = {each: limits for each in committed if not isinstance(limits := bounds[each], str)}
    found = await lags.lag_between(client.cluster, {each: committed[each] for each in known}, known)
    rows = [_row(each, readers.get(each.partition)) for each in found]
    for place, offset in committed.items():
        if isinstance(why := bounds[place], str):
            rows.append(_unknown_row(place, offset, readers.get(place), why))
    records, seconds = lags.total(found)
    return {
        "group": described.group_id,
        "state": described.state,
        "type": described.type,
        "members": len(described.members),
        "lag": records,
        "lag_s": seconds,
        "is_complete": bool(rows) and all(each["lag"] is not None for each in rows),
        "partitions": sorted(rows, key=lambda row: (row["topic"], row["partition"])),
        "uncommitted": [
            {"topic": each.topic, "partition": each.partition} for each in sorted(readers) if each not in committed
        ],
    }


def _row(lag: "PartitionLag", reader: str | None) -> dict[str, Any]:
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed": lag.committed,
        "end": lag.log_end,
        "lag": None if lag.is_beyond else lag.records,
        "lag_s": None if lag.is_beyond else lag.seconds,
        "oldest_ms": lag.oldest_ms,
        "member": reader,
        "note": lag.note,
    }


def _unknown_row(place: "TopicPartition", committed: int, reader: str | None, why: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("end", "lag", "lag_s", "oldest_ms"))
    where = {"topic": place.topic, "partition": place.partition, "committed": committed}
    return {**where, **nothing, "member": reader, "note": why}


def worst_first(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorts groups by lag, the largest first; groups with unknown lag come last."""
    return sorted(groups, key=lambda each: (each["lag"] is None, -(each["lag"] or 0), -(each["lag_s"] or 0)))


def _readers(described: "GroupDescription") -> "dict[TopicPartition, str]":
    return {
        partition: member.instance_id or member.client_id
        for member in described.members
        for partition in member.assignment
    }


def _show_json(found: list[dict[str, Any]], *, is_line: bool) -> None:
    if is_line:
        typer.echo(json_text(found))
    else:
        show_json(found)


def _heading(interval_s: float) -> str:
    from datetime import datetime

    now = datetime.now().astimezone()
    return f"{now:%Y-%m-%d %H:%M:%S}, every {interval_s:g} s. Ctrl-C ends it.\n\n"


def _show_tables(found: list[dict[str, Any]], *, is_one_line: bool) -> None:
    if not found:
        typer.echo(NO_GROUPS, err=True)
    elif is_one_line:
        sys.stdout.write(overview(found))
    else:
        sys.stdout.write("\n".join(map(of_group, found)))


def overview(groups: list[dict[str, Any]]) -> str:
    """A line for every group."""
    return table_text(
        [
            {
                "group": each["group"],
                "state": each["state"],
                "members": each["members"],
                "lag": NOTHING
                if each["lag"] is None
                else Quantity(f"{each['lag']}{'' if each['is_complete'] else '+'}"),
                "behind": NOTHING if each["lag"] is None else Quantity(behind(each["lag_s"])),
                "note": _note(each),
            }
            for each in groups
        ]
    )


def _note(group: dict[str, Any]) -> str:
    """Why the lag of a group is unknown or incomplete."""
    if not group["partitions"]:
        return "nothing committed"
    unknown = [each for each in group["partitions"] if each["lag"] is None]
    if not unknown:
        return ""
    first = unknown[0]
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return f"without {first['topic']}[{first['partition']}]: {first['note']}{more}"


def of_group(group: dict[str, Any]) -> str:
    """A group, and a line for every partition."""
    name = printable(group["group"])
    head = f"{name}: {group['state']}, {_count(group['members'], 'member')}, {summary(group)}.\n"
    rows = [
        {
            "topic": each["topic"],
            "partition": each["partition"],
            "committed": each["committed"],
            "end": UNKNOWN if each["end"] is None else each["end"],
            "lag": UNKNOWN if each["lag"] is None else each["lag"],
            "behind": Quantity(behind(each["lag_s"])),
            "reader": each["member"],
            "note": each["note"] or "",
        }
        for each in group["partitions"]
    ]
    text = head + (table_text(rows) if rows else "Nothing is committed.\n")
    if group["uncommitted"]:
        places = ", ".join(f"{each['topic']}[{each['partition']}]" for each in group["uncommitted"])
        text += f"Read, but nothing committed yet: {printable(places)}.\n"
    return text


def summary(group: dict[str, Any]) -> str:
    """`12 records and 3.4 s behind`."""
    if not group["partitions"]:
        return "nothing committed"
    if group["lag"] is None:
        return "how far behind cannot be told"
    if group["is_complete"]:
        return f"{_count(group['lag'], 'record')} and {behind(group['lag_s'])} behind" if group["lag"] else "at the end"
    unknown = sum(each["lag"] is None for each in group["partitions"])
    known = f"{_count(group['lag'], 'record')} and {behind(group['lag_s'])} behind"
    return f"at least {known}, without {_count(unknown, 'partition')} that cannot be looked at"


def behind(seconds: float | None) -> str:
    """A duration in readable units; with tenths of a second below a minute."""
    from penstock.cli.progress import seconds_text

    if seconds is None:
        return "?"
    return f"{seconds:.1f} s" if seconds < 60 else seconds_text(seconds)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
