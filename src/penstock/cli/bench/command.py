"""`penstock bench`: measures how fast any cluster that speaks the protocol accepts and serves records.

Unless it is given an existing topic, a command creates one and removes it at the end. Acknowledged records are compared
with the log: if the end offsets have not grown by as many records, the command fails instead of reporting a figure.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.connection.completion import complete_topics
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption, parse_pairs, run_with_client
from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json
from penstock.cli.produce.command import Acks, CodecName

if TYPE_CHECKING:
    from penstock.cli.bench.loads import Bounds, Run
    from penstock.cli.bench.topic import TopicPlan
    from penstock.client.client import Client

SECONDS = 10.0

Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]", help="A new one with a name of its own if not given.", autocompletion=complete_topics
    ),
]
Partitions = Annotated[int, typer.Option("-p", "--partitions", min=1, help="Of the topic that is made.")]
Replicas = Annotated[
    int, typer.Option("-r", "--replicas", min=-1, help="Of each partition; the broker's default is -1.")
]
Configs = Annotated[
    list[str] | None, typer.Option("-c", "--config", metavar="K=V", help="Of the topic that is made; repeatable.")
]
Records = Annotated[int | None, typer.Option("-n", "--records", min=1, help="Stop after so many.")]
Seconds = Annotated[float | None, typer.Option("-s", "--seconds", min=0.1, help="Stop after so long: 10 if no -n.")]
RecordBytes = Annotated[int, typer.Option("--record-bytes", min=1, max=10_000_000, help="Of each value.")]
BatchBytes = Annotated[
    int, typer.Option("--batch-bytes", min=1, help="Of a batch before compression; one record at least.")
]
InFlight = Annotated[int, typer.Option("--in-flight", min=1, max=1000, help="Requests under way for each partition.")]
Connections = Annotated[int, typer.Option("--connections", min=1, max=1000, help="To each broker.")]
Rate = Annotated[float, typer.Option("--rate", min=0.1, help="Requests in a second, whatever the broker does.")]
Codec = Annotated[CodecName, typer.Option("-z", "--compression", help="How batches are compressed.")]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Who must have a record before it counts: all or 1.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the topic there.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Write to a topic that exists already, without asking.")]


def produce(
    topic: Topic = None,
    records: Records = None,
    seconds: Seconds = None,
    record_bytes: RecordBytes = 100,
    batch_bytes: BatchBytes = 64 * 1024,
    partitions: Partitions = 1,
    connections: Connections = 1,
    in_flight: InFlight = 5,
    codec: Codec = CodecName.NONE,
    acks: AcksOption = Acks.ALL,
    replicas: Replicas = -1,
    configs: Configs = None,
    keep: Keep = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Write as fast as the cluster accepts it.

    It sends ready-made batches, with several requests under way.
    """
    from penstock.cli.bench.loads import Shape, write

    shape = Shape(record_bytes, batch_bytes, codec.value, _acks(acks), connections, in_flight)
    _run(
        "produce",
        _plan(topic, partitions, replicas, configs, keep, yes),
        lambda run: write(run, shape, _bounds(records, seconds)),
        output,
        bootstrap,
        timeout,
    )


def consume(
    topic: Topic = None,
    records: Annotated[int, typer.Option("-n", "--records", min=1, help="Read so many.")] = 1_000_000,
    seconds: Annotated[float | None, typer.Option("-s", "--seconds", min=0.1, help="Stop after so long.")] = None,
    record_bytes: RecordBytes = 100,
    batch_bytes: BatchBytes = 64 * 1024,
    partitions: Partitions = 1,
    codec: Codec = CodecName.NONE,
    replicas: Replicas = -1,
    configs: Configs = None,
    keep: Keep = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Read as fast as the cluster serves it.

    It reads a topic that exists from its start, or a new one that it fills first.
    """
    from penstock.cli.bench.loads import Shape, read

    shape = Shape(record_bytes, batch_bytes, codec.value)
    plan = _plan(topic, partitions, replicas, configs, keep, None)
    _run("consume", plan, lambda run: read(run, shape, _bounds(records, seconds)), output, bootstrap, timeout)


def latency(
    topic: Topic = None,
    rate: Rate = 1000.0,
    records: Records = None,
    seconds: Seconds = None,
    record_bytes: RecordBytes = 100,
    partitions: Partitions = 1,
    connections: Connections = 1,
    acks: AcksOption = Acks.ALL,
    replicas: Replicas = -1,
    configs: Configs = None,
    keep: Keep = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Write single records at a fixed rate; measure their acks.

    The time of each runs from the moment when it was due.
    """
    from penstock.cli.bench.loads import Shape
    from penstock.cli.bench.paced import pace

    shape = Shape(record_bytes, 1, acks=_acks(acks), connections=connections)
    _run(
        "latency",
        _plan(topic, partitions, replicas, configs, keep, yes),
        lambda run: pace(run, shape, _bounds(records, seconds), rate, follows=False),
        output,
        bootstrap,
        timeout,
    )


def end_to_end(
    topic: Topic = None,
    rate: Rate = 1000.0,
    records: Records = None,
    seconds: Seconds = None,
    record_bytes: RecordBytes = 100,
    partitions: Partitions = 1,
    connections: Connections = 1,
    acks: AcksOption = Acks.ALL,
    replicas: Replicas = -1,
    configs: Configs = None,
    keep: Keep = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Write single records at a fixed rate, and read them.

    The time of each runs from the moment when it was due until it was read.
    """
    from penstock.cli.bench.loads import Shape
    from penstock.cli.bench.paced import pace

    shape = Shape(record_bytes, 1, acks=_acks(acks), connections=connections)
    _run(
        "end-to-end",
        _plan(topic, partitions, replicas, configs, keep, yes),
        lambda run: pace(run, shape, _bounds(records, seconds), rate, follows=True),
        output,
        bootstrap,
        timeout,
    )


def _plan(
    topic: str | None, partitions: int, replicas: int, configs: list[str] | None, keep: bool, yes: bool | None
) -> "TopicPlan":
    from penstock.cli.bench.topic import TopicPlan

    return TopicPlan(topic, partitions, replicas, parse_pairs(configs, "-c"), keeps=keep, may_write=yes)


def _bounds(records: int | None, seconds: float | None) -> "Bounds":
    from penstock.cli.bench.loads import Bounds

    return Bounds(records, SECONDS if records is None and seconds is None else seconds)


def _acks(acks: Acks) -> int:
    if acks is Acks.NONE:
        raise Misused("without acks nothing can be measured but this machine: use --acks all or --acks 1")
    return 1 if acks is Acks.LEADER else -1


def _run(
    what: str,
    plan: "TopicPlan",
    load: "Callable[[Run], Awaitable[dict[str, Any]]]",
    output: Output,
    bootstrap: str | None,
    timeout_s: float,
) -> None:
    """Runs a load on its topic and shows its figures."""
    from penstock.cli.bench.loads import Run
    from penstock.cli.bench.topic import a_bench_topic
    from penstock.cli.progress import Counter

    async def work(client: "Client") -> dict[str, Any]:
        async with a_bench_topic(client, plan) as topic:
            with Counter(f"{what} {topic.name}") as counter:
                return await load(Run(client, topic, counter.add))

    found = {"bench": what, **run_with_client(bootstrap, timeout_s, work)}
    if output is Output.JSON:
        show_json(found)
        return
    width = max(map(len, found))
    for name, value in found.items():
        shown = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else _text(value)
        typer.echo(f"{name.replace('_', ' '):<{width}}  {shown}")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    bench = typer.Typer(
        help="Measure how fast a cluster takes and gives records.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    bench.command(
        "produce",
        epilog=examples(
            "penstock bench produce",
            "penstock bench produce -b broker:9092 -p 16 --connections 16 -s 30",
            "penstock bench produce -n 1000000 --record-bytes 1000 -z lz4 -c durability=replicated -o json",
        ),
    )(produce)
    bench.command(
        "consume",
        epilog=examples(
            "penstock bench consume", "penstock bench consume orders -s 10", "penstock bench consume -n 5000000 -p 16"
        ),
    )(consume)
    bench.command(
        "latency",
        epilog=examples(
            "penstock bench latency --rate 500", "penstock bench latency -s 30 --record-bytes 1000 -o json"
        ),
    )(latency)
    bench.command(
        "end-to-end",
        epilog=examples("penstock bench end-to-end --rate 500", "penstock bench end-to-end -p 4 -n 20000 -o json"),
    )(end_to_end)
    app.add_typer(bench, name="bench")
