"""`penstock log dump`: prints the batches and records of segment files. It needs no broker, and changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.help import examples
from penstock.cli.output import Output, OutputOption, json_text, printable

if TYPE_CHECKING:
    from penstock.records.header import BatchView

PAYLOAD_BYTES_MAX = 256 * 1024 * 1024
"""What one batch may decompress to."""
SHOWN_MAX = 120


def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", readable=False, help="Segments (*.log), or directories of a log.")
    ],
    records: Annotated[bool, typer.Option("--records", help="Print records, too.")] = False,
    start: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="Begin with this offset.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what is in segment files.

    A line per batch: its offsets, position, size, checksum, compression, producer and leader epoch. Exit code 1 if a
    file is damaged or ends inside a batch; the last segment of a broker that was killed may do that.
    """
    damaged = False
    for path in _segments(paths):
        if output is Output.TABLE:
            typer.echo(f"{path}:")
        for line in lines_of(path, start, with_records=records):
            damaged = damaged or not line.get("intact", True)
            typer.echo(json_text({"file": str(path), **line}) if output is Output.JSON else _text(line))
    if damaged:
        raise typer.Exit(1)


def _segments(paths: list[Path]) -> Iterator[Path]:
    from penstock.cli.errors import Failed

    for path in paths:
        if not path.exists():
            raise Failed(f"there is no {path}: the logs of a node are in logs/TOPIC-PARTITION of its data directory")
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.glob("*.log"))
        if not found:
            raise Failed(f"{path} has no segments (*.log): name the directory of one partition")
        yield from found


def lines_of(path: Path, start: int, *, with_records: bool) -> Iterator[dict[str, Any]]:
    """A row per batch, and per record if wanted; the last row names where damage begins."""
    import mmap

    from penstock.model.errors import ProtocolError
    from penstock.records.header import batches

    if not path.stat().st_size:
        return  # an empty file cannot be mapped
    with path.open("rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    end = 0
    try:
        for batch in batches(content):
            end = batch.position + batch.size_bytes
            if batch.last_offset < start:
                continue
            is_intact = batch.is_intact
            yield _batch(batch, is_intact=is_intact)
            if with_records and is_intact:
                yield from _records(batch, start)
    except ProtocolError as error:
        if any(content[end:]):
            yield {"intact": False, "position": end, "error": str(error)}
        else:
            yield {"position": end, "zeros": len(content) - end}


def _batch(batch: "BatchView", *, is_intact: bool) -> dict[str, Any]:
    return {
        "offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.count,
        "position": batch.position,
        "bytes": batch.size_bytes,
        "intact": is_intact,
        "compression": batch.codec.name.lower(),
        "max_timestamp_ms": batch.max_timestamp_ms,
        "leader_epoch": batch.leader_epoch,
        "producer": batch.producer_id if batch.has_producer_id else None,
        "producer_epoch": batch.producer_epoch if batch.has_producer_id else None,
        "sequence": batch.base_sequence if batch.has_producer_id else None,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }


def _records(batch: "BatchView", start: int) -> Iterator[dict[str, Any]]:
    from penstock.records.rows import rows

    for each in rows(batch, PAYLOAD_BYTES_MAX):
        if each.offset >= start:
            yield {
                "record": each.offset,
                "timestamp_ms": each.timestamp_ms,
                "key": _decoded(each.key),
                "value": _decoded(each.value),
                "headers": {name: _decoded(value) for name, value in each.headers},
            }


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _text(line: dict[str, Any]) -> str:
    if "record" in line:
        headers = "".join(f" {name}={value}" for name, value in line["headers"].items())
        value = line["value"]
        shown = "(null)" if value is None else value[:SHOWN_MAX] + ("…" if len(value) > SHOWN_MAX else "")
        key = "" if line["key"] is None else f"{line['key']} = "
        return printable(f"    {line['record']}  {line['timestamp_ms']}  {key}{shown}{headers}")
    if "zeros" in line:
        return f"  {line['zeros']} zeros from position {line['position']} on: room that was not written yet"
    if "error" in line:
        return printable(f"  DAMAGED from position {line['position']} on: {line['error']}")
    producer = (
        ""
        if line["producer"] is None
        else (f", producer {line['producer']} epoch {line['producer_epoch']} sequence {line['sequence']}")
    )
    marks = "".join(f", {name}" for name in ("transactional", "control") if line[name])
    state = "" if line["intact"] else ", WRONG CHECKSUM"
    return (
        f"  {line['offset']}–{line['last_offset']}: {line['records']} records, {line['bytes']} bytes at "
        f"{line['position']}, {line['compression']}, leader epoch {line['leader_epoch']}{producer}{marks}{state}"
    )


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    log = typer.Typer(help="Read the files of a log.", no_args_is_help=True, rich_markup_mode=None)
    log.callback()(lambda: None)
    log.command(
        epilog=examples(
            "penstock log dump .penstock/data/logs/orders-0",
            "penstock log dump .penstock/data/logs/orders-0 --records --from 1000",
            "penstock log dump 00000000000000000000-1.log --records -o json",
        )
    )(dump)
    app.add_typer(log, name="log")
