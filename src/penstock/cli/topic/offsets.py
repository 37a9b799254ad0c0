"""`penstock topic offsets` and `penstock topic trim`: show where logs begin and end; delete the oldest records."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, find, run_with_client
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show

if TYPE_CHECKING:
    from penstock.cli.consume.start_position import Place
    from penstock.client.client import Client

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)]
PartitionsOption = Annotated[
    list[int] | None, typer.Option("-p", "--partition", min=0, help="Only this one; repeatable.")
]


def offsets(
    topic: TopicArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="PLACE", help="Also the offset there: 15m (ago), 2026-01-31T12:00, -10, start."),
    ] = None,
    partitions: PartitionsOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show where partitions begin and end, and where a time is."""
    place = None if at is None else _parsed(at)

    async def work(client: "Client") -> list[dict[str, Any]]:
        from penstock.client.offsets import Moment

        bounds = await _bounds(client, topic, partitions)
        newest = await client.admin.offsets(topic, Moment.MAX_TIMESTAMP, partitions=list(bounds))
        targets = {} if place is None else await _offsets_at(client, topic, bounds, place)
        return [
            {
                "partition": each,
                "start": start,
                "end": end,
                "records_max": end - start,
                "newest_timestamp_ms": stamp if (stamp := newest[each].timestamp_ms) >= 0 else None,
                **({} if place is None else {"at": targets[each]}),
            }
            for each, (start, end) in bounds.items()
        ]

    show(run_with_client(bootstrap, timeout, work), output)


def trim(
    topic: TopicArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="PLACE", help="An offset, 3d (ago), 2026-01-31T12:00, -10 to keep ten, or end for all."
        ),
    ],
    partitions: PartitionsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete the records of a topic before an offset or a time."""
    place = _parsed(before)
    found = find(bootstrap)
    if not dry_run:
        announce(found, yes=yes)

    async def work(client: "Client") -> list[dict[str, Any]]:
        bounds = await _bounds(client, topic, partitions)
        targets = await _offsets_at(client, topic, bounds, place)
        wanted = {each: to for each, to in targets.items() if to > bounds[each][0]}
        starts = targets if dry_run or not wanted else targets | await client.admin.delete_records(topic, wanted)
        return [
            {
                "partition": each,
                "start_before": start,
                "start": starts[each],
                "end": end,
                "trimmed": starts[each] - start,
            }
            for each, (start, end) in bounds.items()
        ]

    rows = run_with_client(found, timeout, work)
    show(rows, output)
    if dry_run and output is Output.TABLE:
        typer.echo("Nothing was deleted: this is what would be done without --dry-run.")


def _parsed(text: str) -> "Place":
    from datetime import UTC, datetime

    from penstock.cli.consume.start_position import parse_place

    return parse_place(text, datetime.now(UTC))


async def _bounds(client: "Client", topic: str, partitions: list[int] | None) -> dict[int, tuple[int, int]]:
    """Log start and end offsets by partition."""
    from penstock.client.offsets import Moment

    known = [each.index for each in (await client.cluster.topic(topic)).partitions]
    if unknown := [each for each in partitions or () if each not in known]:
        raise Failed(f"{topic} has no partition {unknown[0]}: it has {len(known)}, counted from 0")
    wanted = sorted(set(partitions or known))
    starts = await client.admin.offsets(topic, Moment.EARLIEST, partitions=wanted)
    ends = await client.admin.offsets(topic, Moment.LATEST, partitions=wanted)
    return {each: (starts[each].offset, ends[each].offset) for each in wanted}


async def _offsets_at(
    client: "Client", topic: str, bounds: dict[int, tuple[int, int]], place: "Place"
) -> dict[int, int]:
    """The offset of a place in each partition, never outside the log; the end if every record is older."""
    if place.timestamp_ms is not None:
        found = await client.admin.offsets(topic, place.timestamp_ms, partitions=list(bounds))
        return {each: at.offset if at.offset >= 0 else bounds[each][1] for each, at in found.items()}
    if place.offset is None:
        return {each: start if place.word == "earliest" else end for each, (start, end) in bounds.items()}
    offset = place.offset
    return {
        each: min(max(offset if offset >= 0 else end + offset, start), end) for each, (start, end) in bounds.items()
    }


def add_to(topic: typer.Typer) -> None:
    """Registers the commands."""
    topic.command(
        "trim",
        epilog=examples(
            "penstock topic trim orders --before 30d",
            "penstock topic trim orders --before 1000 -p 0 --dry-run",
            "penstock topic trim orders --before end --yes",
        ),
    )(trim)
    topic.command(
        "offsets",
        epilog=examples(
            "penstock topic offsets orders",
            "penstock topic offsets orders --at 2026-01-31T12:00 -o json",
        ),
    )(offsets)
