"""`penstock group reset`: changes the committed offsets of an empty group. Shown first, done with --execute."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_groups, complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, find, run_with_client
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed, Misused
from penstock.cli.output import Output, OutputOption, printable, show_json, show_table

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupDescription
    from penstock.client.client import Client
    from penstock.client.metadata import TopicPartition

AT_REST = ("Empty", "Dead")


def reset(
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups)],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC[:P,P]",
            help="Only this topic, or some of its partitions; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record that is there.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: what is there now is skipped.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime", metavar="TIME", help="To the first record from then on: 2026-01-31T12:00, or 15m (ago)."
        ),
    ] = None,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="So many records on, or back if negative.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it is only shown.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Have a group go on elsewhere. Nothing is changed without --execute, and nothing while the group has members."""
    from datetime import UTC, datetime

    from penstock.cli.consume.start_position import parse_time

    ways = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-offset": to_offset is not None,
        "--to-datetime": to_datetime is not None,
        "--shift-by": shift_by is not None,
    }
    _check_once(list(ways), [way for way, is_given in ways.items() if is_given])
    at_ms = None if to_datetime is None else parse_time(to_datetime, datetime.now(UTC), "--to-datetime")

    async def work(client: "Client") -> list[dict[str, Any]]:
        await _check_at_rest(client, group, is_named=bool(topics))
        committed = await client.admin.group_offsets(group)
        places = await places_of(client, topics, committed)
        if not places:
            raise Failed(f"{printable(group)} has committed nothing yet: say with -t which topics it shall read")
        plan = await plan_of(
            client,
            places,
            committed,
            earliest=to_earliest,
            latest=to_latest,
            offset=to_offset,
            at_ms=at_ms,
            by=shift_by,
        )
        if execute:
            await _commit(client, group, {each["place"]: each["to"] for each in plan})
        return plan

    found = find(bootstrap)
    if execute:
        announce(found, yes=yes)
    plan = run_with_client(found, timeout, work)
    rows = [{name: value for name, value in row.items() if name != "place"} for row in plan]
    if output is Output.JSON:
        show_json({"group": group, "executed": execute, "partitions": rows})
        return
    show_table([{**row, "note": row["note"] or ""} for row in rows])
    if execute:
        typer.echo(f"{printable(group)} goes on there.")
    else:
        typer.echo("Nothing was changed: this is what --execute would do.")


def _check_once(ways: list[str], given: list[str]) -> None:
    if not given:
        raise Misused(f"say where to go on: {', '.join(ways[:-1])} or {ways[-1]}")
    if len(given) > 1:
        raise Misused(f"{' and '.join(given)} are {len(given)} places to go on at: choose one of them")


async def _check_at_rest(client: "Client", group: str, *, is_named: bool) -> None:
    from penstock.client.errors import Refused
    from penstock.model.errors import ErrorCode

    try:
        found = await client.admin.describe_group(group)
    except Refused as refused:
        if refused.code is ErrorCode.GROUP_ID_NOT_FOUND and is_named:
            return  # a future group: it gets offsets before it has members
        raise
    if found.state not in AT_REST or found.members:
        raise Failed(at_work(found, "Its offsets are its members' to commit"))


def at_work(found: "GroupDescription", why: str) -> str:
    """The error message for a group that has members."""
    names = sorted({each.instance_id or each.client_id for each in found.members})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    many = f"{len(found.members)} member{'s' * (len(found.members) != 1)}"
    return printable(
        f"{found.group_id} has {many} at work{f' ({shown})' if names else ''}. {why}: stop them and try again; "
        f"`penstock group describe {found.group_id}` shows who they are"
    )


async def places_of(
    client: "Client", topics: list[str] | None, committed: "Mapping[TopicPartition, int]"
) -> "list[TopicPartition]":
    """All partitions with a committed offset, or those that were named."""
    from penstock.client.metadata import TopicPartition

    if not topics:
        return sorted(committed)
    places = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        known = [each.index for each in (await client.cluster.topic(name)).partitions]
        wanted = known
        if colon:
            try:
                wanted = [int(number) for number in numbers.split(",")]
            except ValueError:
                raise Misused(f"-t {text!r} is not TOPIC or TOPIC:0,1,2") from None
        for number in wanted:
            if number not in known:
                raise Failed(f"{name} has no partition {number}: it has {len(known)}, counted from 0")
            places.append(TopicPartition(name, number))
    return sorted(dict.fromkeys(places))


async def plan_of(
    client: "Client",
    places: "list[TopicPartition]",
    committed: "Mapping[TopicPartition, int]",
    *,
    earliest: bool = False,
    latest: bool = False,
    offset: int | None = None,
    at_ms: int | None = None,
    by: int | None = None,
) -> list[dict[str, Any]]:
    """A row per partition: the committed offset, and the new one, which is never outside the log."""
    from penstock.client.offsets import NO_OFFSET, Moment, list_offsets

    starts = await list_offsets(client.cluster, dict.fromkeys(places, Moment.EARLIEST))
    ends = await list_offsets(client.cluster, dict.fromkeys(places, Moment.LATEST))
    times = {} if at_ms is None else await list_offsets(client.cluster, dict.fromkeys(places, at_ms))
    rows = []
    for place in places:
        start, end, now = starts[place].offset, ends[place].offset, committed.get(place)
        note = None
        if earliest:
            wanted = start
        elif latest:
            wanted = end
        elif offset is not None:
            wanted = offset
        elif by is not None:
            wanted = (start if now is None else now) + by
        else:
            wanted = times[place].offset
            if wanted == NO_OFFSET:
                wanted, note = (
                    end,
                    "there are no records: the end" if start == end else "every record is older: the end",
                )
        to = min(max(wanted, start), end)
        if wanted < start:
            note = f"{start - wanted} before the first record: stops there"
        elif wanted > end:
            note = f"{wanted - end} beyond the end: stops there"
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "now": now,
                "to": to,
                "change": to - (start if now is None else now),
                "note": note,
                "place": place,
            }
        )
    return rows


async def _commit(client: "Client", group: str, offsets: "dict[TopicPartition, int]") -> None:
    from penstock.client.groups.commits import commit_offsets
    from penstock.client.groups.coordinator_link import CoordinatorLink

    await commit_offsets(CoordinatorLink(client.cluster, group), offsets)
