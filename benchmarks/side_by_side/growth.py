"""Measures how cost grows with size: the same load over more partitions, connections, topics, and larger records.

    python -m benchmarks.side_by_side.growth --series partitions,connections --rounds 3 --seconds 5 [--record]

Each series has new brokers, so that one series does not burden the next. Cost is the broker's CPU time per request; its
exponent is the slope of a line through the points on logarithmic axes: 0 means that a request costs the same at any
size, 1 that it costs in proportion.
"""

import argparse
import datetime
import json
import math
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.jobs import Job, Load
from benchmarks.side_by_side.loads import (
    Conditions,
    Figures,
    Produce,
    WrongCount,
    check_count,
    figures,
    new_name,
    watched,
)
from benchmarks.side_by_side.results import FOLDER, CannotRecord, check_recordable, is_noisy, rounded, spread
from benchmarks.side_by_side.rows import CONTENDERS
from benchmarks.side_by_side.running import Plan, running, warming_s
from harness import machine
from harness.machine import divided_cores
from harness.raw_client import RawClient, Refused, Topic

FILE = "growth.json"
PAGE = "growth.md"
SERVING_S = 300.0
HOUR_MS = "3600000"
CHURN_PAUSE_S = 0.1
SETTLING_S_MAX = 400.0
SETTLING_REQUESTS = 4
"""Requests to each partition; from the second on, a batch of 4 KiB adds an index entry."""


@dataclass(frozen=True, slots=True)
class Point:
    """A size, and the load at that size."""

    size: int
    work: Produce
    topics: int = 1
    churns: bool = False
    settings: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points at which one dimension of the load grows."""

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    contenders: tuple[str, ...] = ("penstock-replicated", "kafka", "penstock")
    restarts: bool = False
    """Whether the broker is restarted on its data of the largest size, to measure the time of that."""
    per_byte: bool = False
    """Whether cost is per byte, because requests differ in size."""


SERIES: Mapping[str, Series] = {
    each.name: each
    for each in (
        Series(
            "partitions",
            "4 KiB batches from 16 connections, over 1 to 10,000 partitions",
            "partitions",
            tuple(
                Point(size, Produce(connections=16, partitions=size // topics, batch_bytes=4096), topics)
                for size, topics in ((1, 1), (10, 1), (100, 1), (1000, 1), (10_000, 2))  # Kafka refuses more at once
            ),
            restarts=True,
        ),
        Series(
            "connections",
            "4 KiB batches to 16 partitions, from 1 to 1,000 connections with one request in flight each",
            "connections",
            tuple(
                Point(size, Produce(connections=size, partitions=16, in_flight=1, batch_bytes=4096))
                for size in (1, 10, 100, 1000)
            ),
        ),
        Series(
            "sizes",
            "records of 100 B to 1 MB in batches of 64 KiB or one record, 1 connection",
            "bytes of a record",
            tuple(Point(size, Produce(record_bytes=size)) for size in (100, 1000, 10_000, 100_000, 1_000_000)),
            per_byte=True,
        ),
        Series(
            "topics",
            "4 KiB batches to 1 to 100 topics with an hour's retention, while others come and go",
            "topics",
            tuple(
                Point(size, Produce(connections=16, batch_bytes=4096), size, True, {"retention.ms": HOUR_MS})
                for size in (1, 10, 100)
            ),
        ),
    )
}


@dataclass(slots=True)
class Place:
    """The broker and topics of one contender's load at one size, for all rounds."""

    broker: Broker
    topics: list[Topic]
    used_bytes: int
    """Disk space of the broker before the topics were created."""
    acknowledged: int = 0
    """Records acknowledged so far."""


def run_series(series: Series, plan: Plan) -> dict[str, Any]:
    """Measures all points of a series; contenders take turns at each."""
    names = [each for each in series.contenders if not plan.only or each in plan.only]
    kinds = {CONTENDERS[name].broker for name in names}
    found: dict[str, dict[str, list[Figures]]] = {name: {} for name in names}
    with running(kinds, plan) as brokers:
        for point in series.points:
            places = {name: settle(point, brokers[CONTENDERS[name].broker], name, plan) for name in names}
            if point is series.points[0]:
                for place in places.values():
                    warm(point, place, plan)
            for number in range(plan.rounds):
                for name in names:
                    is_end = point is series.points[-1] and number == plan.rounds - 1
                    restarts = series.restarts and is_end and _is_last(name, names)
                    figure = measure(point, places[name], CONTENDERS[name].settings, plan.conditions, restarts)
                    found[name].setdefault(str(point.size), []).append(figure)
                    tell(series, name, point, figure)
            for place in places.values():
                for topic in place.topics:
                    place.broker.delete(topic)
            for place in places.values():
                place.broker.wait_until_removed(place.used_bytes)
    return {"title": series.title, "axis": series.axis, "per_byte": series.per_byte, "points": found}


def _is_last(name: str, names: Sequence[str]) -> bool:
    """Whether no other contender needs the same broker after this one."""
    later = names[names.index(name) + 1 :]
    return CONTENDERS[name].broker not in {CONTENDERS[each].broker for each in later}


def settle(point: Point, broker: Broker, name: str, plan: Plan) -> Place:
    """Creates the topics, and writes to every partition a few times before the measurement.

    A partition's first batches create files and, in Kafka, touch the first page of each index: milliseconds, once.
    """
    work = point.work
    used_bytes = broker.used_bytes()
    settings = {**CONTENDERS[name].settings, **(point.settings or {})}
    place = Place(
        broker, [broker.create(new_name(), work.partitions, settings) for _ in range(point.topics)], used_bytes
    )
    job = _job(point, place)
    requests = SETTLING_REQUESTS * point.topics * work.partitions
    requests += -requests % job.connections
    load = Load([("generator", replace(job, requests_max=requests))], plan.conditions.cores.load)
    load.begin(0.0, SETTLING_S_MAX)
    place.acknowledged += load.results()[0]["acknowledged"]
    return place


def _job(point: Point, place: Place) -> Job:
    topic_ids = [each.topic_id.hex() for each in place.topics]
    return point.work.job(place.broker, place.topics[0], settings={"topic_ids": topic_ids})


def warm(point: Point, place: Place, plan: Plan) -> None:
    """Warms a broker as for the rows: a new JVM for the whole warm-up time, others briefly."""
    seconds = warming_s(place.broker, plan)
    if seconds:
        conditions = Conditions(plan.conditions.cores, seconds, plan.conditions.lead_s)
        measure(point, place, {}, conditions, restarts=False)
        place.broker.was_warmed = True


def measure(point: Point, place: Place, settings: Mapping[str, str], conditions: Conditions, restarts: bool) -> Figures:
    """Measures one round at one size."""
    broker, partitions = place.broker, point.work.partitions
    load = Load([("generator", _job(point, place))], conditions.cores.load)
    with churning(broker, {**settings, **(point.settings or {})}) if point.churns else _still() as churned:
        begin, end = watched(load, broker, conditions)
        results = load.results()
    place.acknowledged += results[0]["acknowledged"]
    stored = sum(broker.end(each, partitions) for each in place.topics[1:])
    check_count(broker, place.topics[0], partitions, place.acknowledged - stored)
    found = figures(broker, conditions.seconds, begin, end, results)
    found["cpu_us_per_request"] = found["broker_cpu"] / found["requests_s"] * 1e6
    found["churned_topics"] = len(churned)
    if restarts:
        found |= restart(broker, place.topics[-1], partitions - 1)
    return found


def restart(broker: Broker, topic: Topic, partition: int) -> Figures:
    """Restarts the broker cleanly; measures the times until it answers and until the last partition serves."""
    broker.stop()
    broker.start()
    broker.was_warmed = False
    deadline_s = time.monotonic() + SERVING_S
    while time.monotonic() < deadline_s:
        try:
            with RawClient(broker.address) as client:
                client.fetch(topic, partition, 0, bytes_max=1)
            return {"ready_s": broker.ready_s, "serving_s": machine.age_s(broker.pid)}
        except Refused:
            time.sleep(0.05)
    raise WrongCount(f"{broker.name} does not serve partition {partition} {SERVING_S:.0f} s after its start")


@contextmanager
def churning(broker: Broker, settings: Mapping[str, str]) -> Iterator[list[str]]:
    """Creates and deletes topics in the background."""
    done: list[str] = []
    is_over = threading.Event()
    troubles: list[BaseException] = []

    def churn() -> None:
        try:
            while not is_over.wait(CHURN_PAUSE_S):
                topic = broker.create(new_name(), 1, settings)
                broker.delete(topic)
                done.append(topic.name)
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=churn, name="churn")
    thread.start()
    try:
        yield done
    finally:
        is_over.set()
        thread.join(60)
    if troubles:
        raise troubles[0]


@contextmanager
def _still() -> Iterator[list[str]]:
    yield []


# --- the page ---------------------------------------------------------------------------------------------------------


def cost(series: Mapping[str, Any], rounds: Sequence[Figures]) -> float:
    """The median of the figure whose growth is measured."""
    found = spread(rounds, "cpu_s_per_gb" if series["per_byte"] else "cpu_us_per_request")
    assert found is not None
    return found.middle


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line on logarithmic axes."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / sum((x - x_mean) ** 2 for x in xs)


def in_words(slope: float) -> str:
    """Describes an exponent."""
    for bound, words in (
        (-0.1, "falls"),
        (0.1, "stays the same"),
        (0.5, "grows far slower than the size"),
        (0.9, "grows slower than the size"),
        (1.1, "grows in proportion to the size"),
    ):
        if slope < bound:
            return words
    return "grows faster than the size"


INTRODUCTION = """\
The same load on one machine, made larger in one way at a time; cost is the broker's CPU time. The exponent is the slope
on logarithmic axes: 0 means the same cost at any size, 1 cost in proportion. Medians of all rounds. How loads and
brokers are run is told in [side-by-side.md](side-by-side.md).

One setting of this machine weighs on Kafka with many partitions: its disk reads 8 MiB ahead, 64 times as much as Linux
does by itself. Kafka maps two indexes for each partition, and the first touch of each has the kernel fill so much
memory with zeros. Every partition is written to before it is measured, but with 10,000 of them the memory does not
hold, and it begins again: do not take that row for a property of Kafka. Penstock keeps the index of what it writes in
its own memory.
"""


def page(found: Mapping[str, Any]) -> str:
    """The whole text of the page."""
    parts = [
        "# How cost grows with size\n",
        INTRODUCTION,
    ]
    for name, series in found.items():
        unit = "CPU s/GB" if series["per_byte"] else "CPU µs per request"
        parts.append(f"## {name}\n\n{series['title']}.\n")
        for who, points in series["points"].items():
            slope = exponent([(float(size), cost(series, rounds)) for size, rounds in points.items()])
            parts.append(f"- **{CONTENDERS[who].title}**: {unit} {in_words(slope)} (exponent {slope:.2f}).")
        head = [series["axis"], "contender", unit, "MB/s", "requests/s", "RSS MB", "ready s", "serving s", ""]
        lines = [f"\n| {' | '.join(head)} |", "|--:|---|" + "--:|" * (len(head) - 3) + "---|"]
        for who, points in series["points"].items():
            for size, rounds in points.items():
                shown = [_shown(rounds, key) for key in ("mb_s", "requests_s", "rss_end_mb", "ready_s", "serving_s")]
                note = "noisy: others were at work" * is_noisy(rounds)
                cells = [f"{int(size):,}", CONTENDERS[who].title, f"{cost(series, rounds):.3g}", *shown, note]
                lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines) + f"\n\n![{series['title']}](growth-{name}.svg)\n")
        about = series["measured"]
        parts.append(f"`{about['command']}`, {about['date']}, commit {about['commit']}.\n")
    return "\n".join(parts)


def _shown(rounds: Sequence[Figures], key: str) -> str:
    found = spread(rounds, key)
    return "–" if found is None else f"{found.middle:,.0f}" if found.middle >= 100 else f"{found.middle:.3g}"


def draw(found: Mapping[str, Any], folder: Path) -> None:
    """Draws the charts."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "penstock"
    import matplotlib.pyplot as plt

    from benchmarks.side_by_side.charts import COLOURS

    for name, series in found.items():
        figure, axes = plt.subplots(figsize=(7, 4.2))
        for who, points in series["points"].items():
            sizes = [int(size) for size in points]
            costs = [cost(series, rounds) for rounds in points.values()]
            axes.plot(sizes, costs, marker="o", color=COLOURS[who], label=CONTENDERS[who].title)
        axes.set(xscale="log", yscale="log", xlabel=series["axis"], title=series["title"])
        axes.set_ylabel("CPU s/GB" if series["per_byte"] else "CPU µs per request")
        axes.title.set_fontsize(9)
        axes.legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(folder / f"growth-{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"growth-{name}.png", dpi=120)
        plt.close(figure)


def tell(series: Series, who: str, point: Point, found: Figures) -> None:
    """Prints the figures of one round."""
    ready = f"  ready {found['ready_s']:.2f} s, serving {found['serving_s']:.2f} s" if "ready_s" in found else ""
    pace = f"{found['mb_s']:8.1f} MB/s {found['requests_s']:10,.0f} requests/s"
    price = (
        f"{found['cpu_us_per_request']:8.1f} µs {found['cpu_s_per_gb']:7.2f} s/GB  RSS {found['rss_end_mb']:6.0f} MB"
    )
    print(f"{series.name:<12} {point.size:>9,} {who:<20} {pace} {price}{ready}", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", default=",".join(SERIES), help=f"of {', '.join(SERIES)}")
    parser.add_argument("--only", default="", help="contenders; all if not given")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="leave out larger sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm", type=float, default=60.0)
    parser.add_argument("--record", action="store_true", help="write docs/results/growth.md; committed code only")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="as --record, for a look, into another folder")
    options = parser.parse_args()
    only = tuple(each for each in options.only.split(",") if each)
    plan = Plan(Conditions(divided_cores(), options.seconds), options.rounds, options.warm, only)
    if options.record:
        try:
            check_recordable(plan)
        except CannotRecord as why:
            sys.exit(str(why))
    folder: Path | None = FOLDER if options.record else options.report
    for name in options.series.split(","):
        series = _smaller(SERIES[name], options.most)
        found = run_series(series, plan)
        if folder is not None:
            keep(name, found, folder)


def _smaller(series: Series, most: int) -> Series:
    points = tuple(point for point in series.points if point.size <= most)
    return Series(series.name, series.title, series.axis, points, series.contenders, series.restarts, series.per_byte)


def keep(name: str, series: Mapping[str, Any], folder: Path) -> None:
    """Adds a series to the recorded ones, and regenerates page and charts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    before = json.loads(path.read_text())["series"] if path.exists() else {}
    about = {
        "date": datetime.date.today().isoformat(),
        "commit": machine.commit(),
        "command": "python -m benchmarks.side_by_side.growth " + shlex.join(sys.argv[1:]),
        "machine": machine.describe(),
    }
    found = {**before, name: {**rounded(dict(series)), "measured": about}}
    found = {each: found[each] for each in SERIES if each in found}
    path.write_text(json.dumps({"series": found}, indent=1, ensure_ascii=False) + "\n")
    (folder / PAGE).write_text(page(found))
    draw(found, folder)


if __name__ == "__main__":
    main()
