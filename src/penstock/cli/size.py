"""`penstock size`: how many brokers a load needs, and the evidence for it. It contacts no cluster."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import Misused
from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, show_json, show_table

if TYPE_CHECKING:
    from penstock.sizing.evidence import Figure
    from penstock.sizing.plan import Plan


class DurabilityName(StrEnum):
    """The durability setting of the topics."""

    FSYNC = "fsync"
    REPLICATED = "replicated"


def _option(name: str, text: str) -> Any:
    return typer.Option(name, help=text)


def size(
    write: Annotated[str, _option("--write", "Record values per second, as producers send them: 50MB/s, 1GB/s.")],
    read_fanout: Annotated[float, typer.Option("--read-fanout", min=0, help="How often each byte is read.")] = 1.0,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=9, help="Replicas of a partition.")
    ] = 3,
    partitions: Annotated[int, typer.Option("-p", "--partitions", min=1, help="In all topics together.")] = 1_000,
    retention: Annotated[str, _option("--retention", "How long records are kept.")] = "7d",
    record_bytes: Annotated[str, _option("--record-bytes", "A record's value.")] = "1000B",
    batch_bytes: Annotated[str, _option("--batch-bytes", "What a producer sends for a partition at once.")] = "64KiB",
    durability: Annotated[
        DurabilityName, _option("--durability", "Acknowledged from stable storage, or from memory.")
    ] = DurabilityName.FSYNC,
    cores: Annotated[float, typer.Option("--cores-per-broker", min=0.1, help="Cores that each broker has.")] = 2.0,
    memory: Annotated[str, _option("--memory", "Memory of each broker, its page cache included.")] = "8GB",
    disk: Annotated[
        str | None, _option("--disk", "Space of each broker; without it, the plan says how much to give.")
    ] = None,
    disk_write: Annotated[str, _option("--disk-write", "How fast each broker's disk takes a stream.")] = "400MB/s",
    network: Annotated[str, _option("--network", "Of each broker, in each direction.")] = "10Gbit/s",
    busy: Annotated[
        float, typer.Option("--busy", min=0.05, max=1.0, help="The share of all this that is planned for.")
    ] = 0.6,
    output: OutputOption = Output.TABLE,
) -> None:
    """Work out how many brokers a load needs, and what limits them.

    Every figure says how it is known: measured at that size, simulated, extrapolated (and how far), or plain
    arithmetic. docs/scale.md tells what to make of it.
    """
    from penstock.sizing.demand import Durability, Hardware, Load
    from penstock.sizing.limits import Impossible
    from penstock.sizing.plan import plan as work_out
    from penstock.sizing.quantities import parse_bytes, parse_rate, parse_seconds

    load = Load(
        write_bytes_s=_parsed("--write", parse_rate, write),
        read_fanout=read_fanout,
        replication_factor=replication_factor,
        partitions=partitions,
        retention_s=_parsed("--retention", parse_seconds, retention),
        record_bytes=_parsed("--record-bytes", parse_bytes, record_bytes),
        batch_bytes=_parsed("--batch-bytes", parse_bytes, batch_bytes),
        durability=Durability(durability.value),
    )
    hardware = Hardware(
        cores,
        _parsed("--memory", parse_bytes, memory),
        None if disk is None else _parsed("--disk", parse_bytes, disk),
        _parsed("--disk-write", parse_rate, disk_write),
        _parsed("--network", parse_rate, network),
        busy,
    )
    try:
        found = work_out(load, hardware)
    except Impossible as error:
        raise Misused(str(error)) from None
    if output is Output.JSON:
        show_json(as_json(found))
    else:
        _show(found)


def _parsed(option: str, parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise Misused(f"{option}: {error}") from None


# --- showing ----------------------------------------------------------------------------------------------------------


def _show(found: "Plan") -> None:
    show_table([_row(each) for each in found.figures])
    typer.echo("\nWhat asks for how many brokers:")
    show_table(
        [
            {"limit": each.limit.value, "brokers": each.brokers, "known": each.tag.value, "from": _names(each.pages)}
            for each in found.requirements
        ]
    )
    typer.echo(f"\nThe first limit is {found.first_limit.value}.{_what_moves(found)}")
    for sentence in notes(found):
        typer.echo(f"Note: {sentence}.")


def _row(figure: "Figure") -> dict[str, Any]:
    from penstock.sizing.quantities import shown

    return {
        "what": figure.name,
        "value": shown(figure.value, figure.unit),
        "known": known_as(figure),
        "from": _names(figure.pages),
    }


def known_as(figure: "Figure") -> str:
    """The kind of evidence for a figure; if it is extrapolated, also how far."""
    from penstock.sizing.evidence import Tag
    from penstock.sizing.quantities import short

    if figure.tag is not Tag.EXTRAPOLATED or figure.reach is None:
        return figure.tag.value
    how_far = f"{short(figure.reach)} × the size seen" if figure.reach > 1 else "below the size seen"
    return f"{figure.tag.value}, {how_far}"


def _names(pages: tuple[str, ...]) -> str:
    return " ".join(page.removesuffix(".md") for page in pages) or "-"


def _what_moves(found: "Plan") -> str:
    if not found.levers:
        if found.brokers > 1:
            return " Nothing that was tried would move it by itself."
        return f" One broker has room for {1 / found.requirements[0].exact:.1f} times as much."
    rows = [f"{each.change}: {each.brokers} brokers, then {each.then.value}" for each in found.levers]
    return " What would move it:\n  " + "\n  ".join(rows)


def notes(found: "Plan") -> tuple[str, ...]:
    """Notes and warnings for the reader of the plan."""
    if found.alone > 1:
        return found.warnings
    alone = "one node carries this load: more are for when a machine must not be waited for (--replication-factor 1)"
    return (alone, *found.warnings) if found.brokers > 1 else found.warnings


def as_json(found: "Plan") -> dict[str, Any]:
    """The plan for programs, in bytes and seconds."""
    from dataclasses import asdict

    return {
        "brokers": found.brokers,
        "brokers_without_replicas": found.alone,
        "first_limit": found.first_limit.value,
        "load": asdict(found.load),
        "per_broker": asdict(found.hardware),
        "figures": [asdict(each) for each in found.figures],
        "limits": [{**asdict(each), "brokers": each.brokers} for each in found.requirements],
        "levers": [asdict(each) for each in found.levers],
        "notes": list(notes(found)),
    }


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command(
        epilog=examples(
            "penstock size --write 20MB/s --replication-factor 1",
            "penstock size --write 1GB/s --read-fanout 3 --partitions 3000 --retention 7d",
            "penstock size --write 10GB/s --durability replicated --network 25Gbit/s --disk 20TB -o json",
        )
    )(size)
