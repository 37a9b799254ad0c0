"""`penstock produce`: every line of the input becomes a record."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failing import Failed
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.running import TIMEOUT_S, BootstrapOption, TimeoutOption, parse_pairs, run_with_client

if TYPE_CHECKING:
    from penstock.client.client import Client

STDIN = 0


class CodecName(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who must have a record before it counts as delivered."""

    ALL = "all"
    MINUS_ONE = "-1"
    LEADER = "1"
    NONE = "0"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Created if it is missing and the broker does so.")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", "--key-delimiter", help="What stands between key and value in a line.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="K=V", help="A header of every record; repeatable.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-i", "--file", readable=False, help="Read from a file instead of stdin.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Chosen by key if not given.")
    ] = None,
    codec: Annotated[
        CodecName, typer.Option("-z", "--compression", help="How batches are compressed.")
    ] = CodecName.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record before it counts.")] = Acks.ALL,
    empty_is_null: Annotated[bool, typer.Option("-Z", "--null", help="An empty value deletes its key.")] = False,
    is_quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not tell where records went.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Send lines of stdin, or of a file, as records; tell where they went."""
    from penstock.cli.deliveries import Deliveries
    from penstock.cli.lines import read_lines
    from penstock.cli.progress import Counter
    from penstock.cli.records import Splitter
    from penstock.records.compression import Codec

    entries = [(name, value.encode()) for name, value in parse_pairs(headers, "-H").items()]
    splitter = Splitter(key, key_delimiter, empty_is_null=empty_is_null)

    async def work(client: "Client") -> Deliveries:
        producer = client.producer(
            acks="all" if acks in {Acks.ALL, Acks.MINUS_ONE} else int(acks),
            codec=Codec[codec.name],
            linger_ms=5,
            delivery_timeout_ms=int(timeout * 1000),
            block_ms_max=int(timeout * 1000),
        )
        deliveries = Deliveries()
        is_new = topic in await client.cluster.refresh([topic])
        with _input(file) as descriptor, Counter(f"to {topic}", _size(file)) as counter:
            async for lines in read_lines(descriptor):
                for line in lines:
                    its_key, value = splitter.split(line)
                    sent = await producer.send(topic, value, key=its_key, headers=entries, partition=partition)
                    deliveries.watch(sent)
                counter.add(len(lines), len(lines) + sum(map(len, lines)))
                if deliveries.error is not None:
                    break
            await producer.flush()
            await deliveries.settled()
        if is_new and deliveries.count:
            count = len((await client.cluster.topic(topic)).partitions)
            typer.echo(
                f"Topic {topic} is new: the broker has created it with {count} partition{'s' * (count != 1)}.", err=True
            )
        return deliveries

    done = run_with_client(bootstrap, timeout, work)
    if output is Output.JSON:
        show_json(done.rows)
    elif not is_quiet:
        for row in done.rows:
            typer.echo(done.shown(row))
    if done.error is not None:
        if done.count:
            raise Failed(f"{done.count} records were delivered before this went wrong: {done.error}") from done.error
        raise done.error


@contextmanager
def _input(file: Path | None) -> Iterator[int]:
    if file is None:
        if os.isatty(STDIN):
            typer.echo("Every line becomes a record; Ctrl-D ends.", err=True)
        yield STDIN
        return
    with file.open("rb", buffering=0) as opened:
        yield opened.fileno()


def _size(file: Path | None) -> int | None:
    """Bytes to be read, where that is known beforehand."""
    return file.stat().st_size if file is not None and file.is_file() else None


def add_to(app: typer.Typer) -> None:
    """Makes the command known."""
    app.command(
        epilog=examples(
            "echo '{\"id\": 1}' | penstock produce orders",
            "printf 'alice:1\\nbob:2\\n' | penstock produce users -K:",
            "penstock produce orders --file orders.jsonl -z zstd -H source=import",
        )
    )(produce)
