"""`penstock consume`: prints the records of a topic."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.help import examples
from penstock.cli.running import TIMEOUT_S, BootstrapOption, TimeoutOption, run_with_client

if TYPE_CHECKING:
    from penstock.cli.formats import Printer
    from penstock.cli.starts import Place
    from penstock.client.client import Client
    from penstock.client.consumer import Consumer, Start
    from penstock.client.metadata import TopicPartition


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            "-o",
            "--offset",
            metavar="PLACE",
            help="start, end, an offset, -10 for the last ten of each partition, 15m (ago), or 2026-01-31T12:00; "
            "-o json is short for -f json.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--num", "-c", min=1, help="Stop after so many.")] = None,
    until_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end of what is there now.")] = False,
    form: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            help="json, or text with %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, "
            "%K and %S lengths, \\n, \\t.",
        ),
    ] = "",
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
    """Print the records of a topic: from its start, for ever, unless told otherwise. Ctrl-C ends."""
    from datetime import UTC, datetime

    from penstock.cli import formats
    from penstock.cli.progress import Counter
    from penstock.cli.reader import until_reader_leaves
    from penstock.cli.starts import parse_place

    places = [each for each in start or () if each != "json"]
    if len(places) < len(start or ()):
        form = form or "json"
    short = r"%h\t%k\t%s\n" if with_headers else formats.WITH_KEY if with_keys else formats.PLAIN
    printer = formats.printer_of(form or short)
    place = parse_place(places[-1] if places else "start", datetime.now(UTC))

    async def work(client: "Client") -> None:
        from penstock.client.fetcher import FetchSettings
        from penstock.client.offsets import Isolation

        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        consumer = client.consumer(FetchSettings(isolation=isolation))
        starts = await _starts(client, topic, partitions, place)
        await consumer.assign(starts, until_end=until_end)
        is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        total = await _total(client, starts, count) if is_shown and until_end else count
        with Counter(f"from {topic}", total, is_shown=is_shown) as counter:
            async with until_reader_leaves(sys.stdout.fileno()):
                await _print(consumer, printer, count, counter.add)

    try:
        run_with_client(bootstrap, timeout, work)
    except KeyboardInterrupt:  # how a reader without end is ended
        sys.stdout.flush()


async def _print(consumer: "Consumer", printer: "Printer", count: int | None, counted: Callable[[int], None]) -> None:
    left = count
    out = sys.stdout.buffer
    while left is None or left > 0:
        piece = await consumer.fetch_records(500 if left is None else min(500, left))
        if piece is None:
            return
        out.write(b"".join(map(printer, piece.messages())))
        out.flush()
        counted(len(piece.records))
        left = None if left is None else left - len(piece.records)


async def _total(client: "Client", starts: "Mapping[TopicPartition, Start]", count: int | None) -> int | None:
    """How many there will be, as far as offsets tell."""
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
    """Where each partition is read from."""
    from penstock.client.consumer import At
    from penstock.client.metadata import TopicPartition
    from penstock.client.offsets import Moment

    if partitions is None:
        partitions = [each.index for each in (await client.cluster.topic(topic)).partitions]
    places = [TopicPartition(topic, each) for each in partitions]
    if place.timestamp_ms is not None:
        return dict.fromkeys(places, At(place.timestamp_ms))
    if place.offset is None:
        return dict.fromkeys(places, "earliest" if place.word == "earliest" else "latest")
    if place.offset >= 0:
        return dict.fromkeys(places, place.offset)
    first = await client.admin.offsets(topic, Moment.EARLIEST, partitions=partitions)
    end = await client.admin.offsets(topic, Moment.LATEST, partitions=partitions)
    return {each: max(first[each.partition].offset, end[each.partition].offset + place.offset) for each in places}


def add_to(app: typer.Typer) -> None:
    """Makes the command known."""
    app.command(
        epilog=examples(
            "penstock consume orders",
            "penstock consume orders --from end -f json",
            r"penstock consume orders -o -10 -e -f '%p@%o %T %k=%s\n'",
            "penstock consume orders --from 15m -n 100",
        )
    )(consume)
