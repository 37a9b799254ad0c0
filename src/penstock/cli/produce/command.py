"""`penstock produce`: every line of the input becomes a record."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, parse_pairs, run_with_client
from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json

if TYPE_CHECKING:
    from penstock.cli.produce.deliveries import Deliveries
    from penstock.cli.produce.parsing import Parse
    from penstock.client.client import Client

STDIN = 0


class CodecName(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Form(StrEnum):
    """What a line of the input is."""

    LINES = "lines"
    JSON = "json"


class Acks(StrEnum):
    """The replicas that must have a record before it counts as delivered."""

    ALL = "all"
    MINUS_ONE = "-1"
    LEADER = "1"
    NONE = "0"


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="Created if it is missing and the broker does so.",
            autocompletion=complete_topics,
        ),
    ],
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", "--key-delimiter", help="What stands between key and value in a line.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="K=V", help="A header of every record; repeatable.")
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "-f", "--format", help="A line is a value, or a record in JSON as `penstock consume -f json` writes it."
        ),
    ] = Form.LINES,
    file: Annotated[
        Path | None, typer.Option("-i", "--file", readable=False, help="Read from a file instead of stdin.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Chosen by key if not given.")
    ] = None,
    keeps_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions/--choose-partitions",
            help="With -f json: into the partition that a line names, or chosen by key.",
        ),
    ] = True,
    codec: Annotated[
        CodecName, typer.Option("-z", "--compression", help="How batches are compressed.")
    ] = CodecName.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record before it counts.")] = Acks.ALL,
    empty_is_null: Annotated[bool, typer.Option("-Z", "--null", help="An empty value deletes its key.")] = False,
    is_quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not print where records went.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Send lines of stdin, or of a file, as records.

    At a terminal, every line is acknowledged at once. With -f json a line is an object: "value" (text; null for a
    tombstone), and if wanted "key", "headers" ([{"name": ..., "value": ...}]), "timestamp_ms" and "partition"; bytes
    that are not UTF-8 are in "value_base64", "key_base64" and "name_base64".
    """
    from penstock.cli.produce.input_lines import read_lines
    from penstock.cli.produce.json_records import JsonParser
    from penstock.cli.produce.parsing import Splitter
    from penstock.cli.produce.sending import send_batched, send_by_line
    from penstock.cli.progress import Counter
    from penstock.records.compression import Codec

    entries = tuple((name, value.encode()) for name, value in parse_pairs(headers, "-H").items())
    parse: Parse
    if form is Form.JSON:
        if key is not None or key_delimiter is not None or empty_is_null:
            raise Misused("-k, -K and -Z are for plain lines: a line in JSON has its own key, and null is null")
        parse = JsonParser(keeps_partitions=keeps_partitions, partition=partition, headers=entries).parse
    else:
        splitter = Splitter(key, key_delimiter, empty_is_null=empty_is_null, headers=entries, partition=partition)
        parse = splitter.parse
    is_typed = file is None and os.isatty(STDIN)
    is_told = not is_quiet and output is not Output.JSON

    async def work(client: "Client") -> "Deliveries":
        producer = client.producer(
            acks="all" if acks in {Acks.ALL, Acks.MINUS_ONE} else int(acks),
            codec=Codec[codec.name],
            linger_ms=0 if is_typed else 5,
            delivery_timeout_ms=int(timeout * 1000),
            block_ms_max=int(timeout * 1000),
        )
        is_new = topic in await client.cluster.refresh([topic])
        with _input(file) as descriptor:
            lines = read_lines(descriptor)
            if is_typed:
                typer.echo("Every line becomes a record; Ctrl-D ends.", err=True)
                deliveries = await send_by_line(producer, topic, lines, parse, typer.echo if is_told else _not_told)
            else:
                with Counter(f"to {topic}", _size(file)) as counter:
                    deliveries = await send_batched(producer, topic, lines, parse, counter.add)
        if is_new and deliveries.count:
            count = len((await client.cluster.topic(topic)).partitions)
            typer.echo(
                f"Topic {topic} is new: the broker has created it with {count} partition{'s' * (count != 1)}.", err=True
            )
        return deliveries

    done = run_with_client(bootstrap, timeout, work)
    if output is Output.JSON:
        show_json(done.rows)
    elif is_told and not is_typed:
        for row in done.rows:
            typer.echo(done.shown(row))
    if done.error is not None:
        if done.count:
            records = "1 record was" if done.count == 1 else f"{done.count} records were"
            raise Failed(f"{records} delivered before this went wrong: {done.error}") from done.error
        raise done.error


@contextmanager
def _input(file: Path | None) -> Iterator[int]:
    if file is None:
        yield STDIN
        return
    with file.open("rb", buffering=0) as opened:
        yield opened.fileno()


def _not_told(_: str) -> None:
    """Prints nothing."""


def _size(file: Path | None) -> int | None:
    """The size of the input in bytes, if it is known beforehand."""
    return file.stat().st_size if file is not None and file.is_file() else None


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(
        epilog=examples(
            "echo '{\"id\": 1}' | penstock produce orders",
            "printf 'alice:1\\nbob:2\\n' | penstock produce users -K:",
            "penstock produce orders --file orders.txt -z zstd -H source=import",
            "penstock consume orders -e -f json | penstock produce copy -f json",
        )
    )(produce)
