"""Generates src/penstock/sizing/coefficients.py, the coefficients of `penstock size`, from the pages of results.

Each number is read from the file that a measurement wrote, so that a new measurement changes the plan; until
`./dev pages` is run, the test of the pages fails.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

RESULTS: Final = Path(__file__).parents[1] / "results"
HEAD: Final = '''"""What was measured and simulated, out of docs/results: made by `./dev pages`, never by hand."""

from collections.abc import Mapping
from typing import Final

from penstock.sizing.evidence import Coefficient, Tag

COEFFICIENTS: Final[Mapping[str, Coefficient]] = {
'''
DURABILITIES: Final = {"fsync": "penstock", "replicated": "penstock-replicated"}
TRIOS: Final = {"fsync": "penstock-3-sync", "replicated": "penstock-3"}


class Found(NamedTuple):
    """A number, and the place in the results where it is recorded."""

    key: str
    value: float
    unit: str
    page: str
    where: str
    tag: str = "MEASURED"


def page() -> str:
    """The source of the module."""
    rows = []
    for found in all_found():
        parts = (f"{rounded(found.value)!r}", quoted(found.unit), f"Tag.{found.tag}", *map(quoted, found[3:5]))
        rows.append(
            f"    {quoted(found.key)}: Coefficient(\n" + "".join(f"        {part},\n" for part in parts) + "    ),\n"
        )
    return HEAD + "".join(rows) + "}\n"


def quoted(text: str) -> str:
    """A Python string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def rounded(value: float) -> float | int:
    """Rounds to three significant digits; whole numbers become int."""
    short = float(f"{value:.3g}")
    return int(short) if short == int(short) and abs(short) >= 1 else short


def all_found() -> Iterator[Found]:
    """Every number."""
    yield from _requests()
    yield from _reading()
    yield from _followers()
    yield from _memory()
    yield from _density()
    yield from _controller()
    yield from _quorum()
    yield from _thirty()
    yield from _big_cluster()


# --- the files --------------------------------------------------------------------------------------------------------


@cache
def _json(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def _row(row: str, contender: str, figure: str) -> float:
    rounds: list[dict[str, float]] = _json("side-by-side.json")["rows"][row]["rounds"][contender]
    return median(each[figure] for each in rounds)


def _point(series: str, contender: str, size: int, figure: str) -> float:
    rounds: list[dict[str, float]] = _json("growth.json")["series"][series]["points"][contender][str(size)]
    return median(each[figure] for each in rounds)


def _told(page_name: str, pattern: str) -> float:
    """A number from a page without a JSON file; the pattern identifies it by the words around it."""
    found = re.search(pattern, (RESULTS / page_name).read_text())
    if found is None:
        raise ValueError(f"{page_name} does not say {pattern!r} any more")
    return float(found[1].replace(",", ""))


# --- one broker -------------------------------------------------------------------------------------------------------


def _requests() -> Iterator[Found]:
    """CPU time of the broker per produce request, by the bytes of values in the request."""
    for durability, contender in DURABILITIES.items():
        for size, row in (("tiny", "small-16"), ("batch", "produce-16")):
            value_bytes = 1e6 * _row(row, contender, "mb_s") / _row(row, contender, "requests_s")
            cpu_us = _row(row, contender, "cpu_s_per_gb") * value_bytes / 1e3
            yield from _request(durability, size, value_bytes, cpu_us, "side-by-side.md", f"row {row}, {contender}")
        for size, series, at in (
            ("small", "partitions", 1_000),
            ("large", "sizes", 100_000),
            ("huge", "sizes", 1_000_000),
        ):
            asked_s = _point(series, contender, at, "requests_s")
            value_bytes = 1e6 * _point(series, contender, at, "mb_s") / asked_s
            cpu_us = _point(series, contender, at, "cpu_s_per_gb") * value_bytes / 1e3
            yield from _request(durability, size, value_bytes, cpu_us, "growth.md", f"{series}, {at:,}, {contender}")
        yield Found(
            f"most.{durability}",
            1e6 * _row("produce-16", contender, "mb_s"),
            "B/s",
            "side-by-side.md",
            f"row produce-16, {contender}: one broker on one core, 64 KiB batches to 16 partitions",
        )
        yield Found(
            f"most.partition.{durability}",
            1e6 * _row("produce-1", contender, "mb_s"),
            "B/s",
            "side-by-side.md",
            f"row produce-1, {contender}: one partition, one connection",
        )
        yield Found(
            f"steady.{durability}",
            _row("steady", contender, "broker_cpu"),
            "cores",
            "side-by-side.md",
            f"row steady, {contender}: 50 MB/s of 64 KiB batches",
        )
        alone, beside = _row("produce-16", contender, "mb_s"), _row("produce-cores", contender, "mb_s")
        yield Found(
            f"second_core.{durability}",
            beside / alone,
            "×",
            "side-by-side.md",
            f"rows produce-cores and produce-16, {contender}: what a second core brings",
        )


def _request(durability: str, size: str, value_bytes: float, cpu_us: float, page: str, where: str) -> Iterator[Found]:
    yield Found(f"bytes.{durability}.{size}", value_bytes, "B/request", page, where)
    yield Found(f"cpu.{durability}.{size}", cpu_us, "µs/request", page, where)


def _reading() -> Iterator[Found]:
    where = "row consume-16, penstock: hot 64 KiB batches"
    yield Found("read.cpu", _row("consume-16", "penstock", "cpu_s_per_gb"), "s/GB", "side-by-side.md", where)


def _followers() -> Iterator[Found]:
    """CPU time that a follower adds, serving it included, as a share of the leader's own CPU time."""
    rows = _json("side-by-side.json")["rows"]
    read = _row("consume-16", "penstock", "cpu_s_per_gb")
    for durability, contender in DURABILITIES.items():
        alone = _row("produce-16", contender, "cpu_s_per_gb")
        trio = TRIOS[durability]
        if "replicated" in rows and trio in rows["replicated"]["rounds"]:
            share = (_row("replicated", trio, "cpu_s_per_gb") - alone) / 2 / alone
            where = f"rows replicated, {trio}, and produce-16, {contender}: half of what two followers add"
            yield Found(f"follower.{durability}", share, "×", "side-by-side.md", where)
        else:
            share = (alone + read) / alone
            where = f"rows produce-16, {contender}, and consume-16: as if it were a producer and a reader"
            yield Found(f"follower.{durability}", share, "×", "side-by-side.md", where, "EXTRAPOLATED")


def _memory() -> Iterator[Found]:
    few, many = (_point("partitions", "penstock", size, "rss_end_mb") for size in (1, 10_000))
    yield Found("memory.base", 1e6 * few, "B", "growth.md", "partitions, 1, penstock: a broker with one partition")
    yield Found(
        "memory.replica", 1e6 * (many - few) / 9_999, "B", "growth.md", "partitions, 1 and 10,000, penstock: each more"
    )


def _density() -> Iterator[Found]:
    runs = _json("density.json")
    most = max(run["partitions"] for run in runs)
    these = [run for run in runs if run["partitions"] == most]
    where = f"{most:,} partitions, three brokers"

    def worst(figure: str) -> float:
        return float(max(run[figure] for run in these))

    yield Found("density.replicas", most, "replicas/broker", "density.md", where)
    yield Found("density.idle", worst("idle_percent") / 100, "cores", "density.md", f"{where}: each, while idle")
    yield Found("density.led_again", worst("led_again_s"), "s", "density.md", f"{where}: one is killed, the slower run")


# --- controllers ------------------------------------------------------------------------------------------------------


def _controller() -> Iterator[Found]:
    name = "controller-scale.md"
    for key, unit, scale, pattern, where in CONTROLLER:
        yield Found(key, scale * _told(name, pattern), unit, name, where)


CONTROLLER: Final[Sequence[tuple[str, str, float, str, str]]] = (
    ("controller.partitions", "partitions", 1, r"([\d,]+) partitions with 3 replicas", "one controller"),
    ("controller.load", "s", 1, r"Loading[^|]*\| ([\d.,]+)", "loading the image and the index over it"),
    ("controller.memory", "B", 2**20, r"Memory[^|]*\| ([\d.,]+)", "of the process, loaded"),
    ("controller.failure", "s", 1, r"One broker fails[^|]*\| ([\d.,]+)", "until a lost broker leads nothing"),
    (
        "controller.failure.records",
        "records",
        1,
        r"The failure took ([\d,]+) records",
        "until a lost broker leads nothing",
    ),
    ("controller.snapshot", "B", 1e6, r"s for (\d+) MB", "a snapshot"),
)


def _quorum() -> Iterator[Found]:
    seconds = sorted(_json("controller-failover.json")["Penstock"]["seconds"])
    where = f"{len(seconds)} kills of the active of three controllers: the longest"
    yield Found("failover.longest", seconds[-1], "s", "controller-failover.md", where)


# --- many brokers -----------------------------------------------------------------------------------------------------


def _thirty() -> Iterator[Found]:
    """The newest of the runs with the most nodes."""
    runs = _json("thirty.json")
    run = max(enumerate(runs), key=lambda pair: (pair[1]["nodes"], pair[0]))[1]
    where = f"{run['nodes']} processes on one machine, three of them controllers"
    for key, value, unit, what in (
        ("nodes", run["nodes"], "nodes", "that ran together"),
        ("serve", run["serve_s"], "s", "started at once, until all are let in"),
        ("idle", run["idle_percent"] / 100, "cores", "each, while idle"),
        ("memory", run["pss_mb"] * 2**20, "B", "each, with shared pages shared out"),
        ("led_again", run["led_again_s"], "s", "one is killed, until all it led is led again"),
    ):
        yield Found(f"thirty.{key}", value, unit, "thirty.md", f"{where}: {what}")


def _big_cluster() -> Iterator[Found]:
    """The newest of the worlds with the most partitions."""
    run = max(_json("big-cluster.json"), key=lambda each: (each["partitions"], each["date"]))
    where = f"{run['brokers']} brokers, {run['partitions']:,} partitions, {run['racks']} racks"
    for key, value, unit, what in (
        ("brokers", run["brokers"], "brokers", "in the world"),
        ("heartbeats", run["heartbeats_s"] / run["brokers"], "1/s", "heartbeats of each broker"),
        ("heartbeat", run["heartbeat_us"], "µs", "CPU of the controller core for one of these"),
        ("fetches", run["fetches_per_broker_s"], "1/s", "fetches of the metadata log by each broker, at rest"),
        ("fetch", run["fetch_us"], "µs", "CPU of the leader's raft core for one of these"),
        ("rack", run["rack_led_again_s"], "s", "a rack goes dark, until all is led again"),
    ):
        yield Found(f"big.{key}", value, unit, "big-cluster.md", f"{where}: {what}", "SIMULATED")
