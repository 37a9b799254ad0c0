"""`penstock consume`: prints the records of a topic."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_groups, complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client
from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.cli.consume.start_position import Place
    from penstock.client.client import Client
    from penstock.client.consumer.consumer import Start
    from penstock.client.metadata import TopicPartition


INTERRUPTED = 130


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)],
    start: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            "-o",
            "--offset",
            metavar="PLACE",
            help="start, end, an offset, -10 for the last ten of each partition, 15m (ago), or 2026-01-31T12:00; "
            "-o json is --output json.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--group",
            help="Read as a member of this group, and commit what is printed. --from is for partitions without a "
            "committed offset.",
            autocompletion=complete_groups,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--num", "-c", min=1, help="Stop after this number of records.")
    ] = None,
    until_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end of what is there now.")] = False,
    form: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            help="json, which `penstock produce -f json` reads; or text with %t topic, %p partition, %o offset, "
            "%k key, %s or %v value, %h headers, %T time in ms, %K and %S lengths of key and value (-1: null), "
            "%%, \\n, \\r, \\t, \\0, \\xHH, \\\\.",
        ),
    ] = "",
    output: Annotated[Output, typer.Option("--output", help="The values for people, or -f json.")] = Output.TABLE,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Only this one; repeatable.")
    ] = None,
    with_keys: Annotated[bool, typer.Option("-k", "--keys", help="Short for -f '%k\\t%s\\n'.")] = False,
    with_headers: Annotated[bool, typer.Option("-H", "--headers", help="Short for -f '%h\\t%k\\t%s\\n'.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out what transactions have not committed.")
    ] = False,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Print the records of a topic.

    Without options, from its start and without an end; Ctrl-C ends it. If a broker fails, reading continues when it is
    back; with -e only if that is within --timeout.
    """
    import asyncio
    from datetime import UTC, datetime

    from penstock.cli.consume import formats
    from penstock.cli.consume.outages import Outages
    from penstock.cli.consume.reading import Printing, ended_by_sigterm, explained, fetch_settings
    from penstock.cli.consume.start_position import parse_place
    from penstock.cli.progress import Counter

    def tell(text: str) -> None:
        typer.echo(f"penstock: {text}", err=True)

    places = [each for each in start or () if each != "json"]
    if output is Output.JSON or len(places) < len(start or ()):
        if with_keys or with_headers or form not in ("", "json"):
            raise Misused("--output json and -f, -k or -H ask for different formats: leave out one of them")
        form = "json"
    short = r"%h\t%k\t%s\n" if with_headers else formats.WITH_KEY if with_keys else formats.PLAIN
    printer = formats.printer_of(form or short)
    place = parse_place(places[-1] if places else "start", datetime.now(UTC))
    if group is not None:
        _check_member(partitions, place, until_end=until_end)

    async def work(client: "Client") -> None:
        fetching = fetch_settings(is_committed=committed)
        outages = Outages(topic, group, int(timeout * 1000) if until_end else None, tell)
        is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        async with ended_by_sigterm():
            if group is not None:
                with Counter(f"from {topic}", count, is_shown=is_shown) as counter:
                    printing = Printing(client, topic, printer, count, outages, counter.add)
                    await printing.read_as_member(group, _start(place), fetching, tell)
                return
            consumer = client.consumer(fetching)
            async with explained(f"Waiting for the leaders of {topic}, for {timeout:g} s at most.", tell):
                starts = await _starts(client, topic, partitions, place)
                await consumer.assign(starts, until_end=until_end)
            total = await _total(client, starts, count) if is_shown and until_end else count
            with Counter(f"from {topic}", total, is_shown=is_shown) as counter:
                await Printing(client, topic, printer, count, outages, counter.add).read(consumer)

    try:
        run_with_client(bootstrap, timeout, work)
    except (KeyboardInterrupt, asyncio.CancelledError):  # the normal end of an endless read
        if until_end or count is not None:
            raise typer.Exit(INTERRUPTED) from None


def _check_member(partitions: list[int] | None, place: "Place", *, until_end: bool) -> None:
    """Raises Misused for options that a member of a group cannot have."""
    if partitions is not None:
        raise Misused("a group shares out the partitions of a topic by itself: leave out -p or -g")
    if until_end:
        raise Misused("a member of a group has no end of its own, as others read the topic, too: leave out -e or -g")
    if place.offset is not None:
        raise Misused(
            "a group begins at start, end or a time where it has committed nothing: `penstock group reset` moves it "
            "to other offsets"
        )


def _start(place: "Place") -> "Start":
    """The start of a place that is no offset."""
    from penstock.client.consumer.consumer import At

    if place.timestamp_ms is not None:
        return At(place.timestamp_ms)
    return "earliest" if place.word == "earliest" else "latest"


async def _total(client: "Client", starts: "Mapping[TopicPartition, Start]", count: int | None) -> int | None:
    """The expected number of records, as far as offsets show."""
    from penstock.client.offsets import Moment, list_offsets

    numbers = {each: at for each, at in starts.items() if isinstance(at, int)}
    others = dict.fromkeys((each for each, at in starts.items() if at == "earliest"), Moment.EARLIEST)
    if len(numbers) + len(others) < len(starts):
        return count
    ends = await list_offsets(client.cluster, dict.fromkeys(starts, Moment.LATEST))
    numbers |= {each: at.offset for each, at in (await list_offsets(client.cluster, others)).items()}
    total = sum(max(0, end.offset - numbers[each]) for each, end in ends.items())
    return total if count is None else min(count, total)


async def _starts(
    client: "Client", topic: str, partitions: list[int] | None, place: "Place"
) -> "Mapping[TopicPartition, Start]":
    """The start position of each partition."""
    from penstock.client.metadata import TopicPartition
    from penstock.client.offsets import Moment

    if partitions is None:
        partitions = [each.index for each in (await client.cluster.topic(topic)).partitions]
    places = [TopicPartition(topic, each) for each in partitions]
    if place.offset is None:
        return dict.fromkeys(places, _start(place))
    if place.offset >= 0:
        return dict.fromkeys(places, place.offset)
    first = await client.admin.offsets(topic, Moment.EARLIEST, partitions=partitions)
    end = await client.admin.offsets(topic, Moment.LATEST, partitions=partitions)
    return {each: max(first[each.partition].offset, end[each.partition].offset + place.offset) for each in places}


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(
        epilog=examples(
            "penstock consume orders",
            "penstock consume orders --from end -f json",
            r"penstock consume orders -o -10 -e -f '%p@%o %T %k=%s\n'",
            "penstock consume orders --from 15m -n 100",
            "penstock consume orders -g billing",
            "penstock consume orders -e -f json > orders.jsonl",
        )
    )(consume)
