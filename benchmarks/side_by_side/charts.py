"""Charts of the recorded figures: PNG for embedding, SVG for zooming."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.results import Rows, spread
from benchmarks.side_by_side.rows import CONTENDERS, ROWS

COLOURS = {
    "penstock": "#1b6ca8",
    "penstock-replicated": "#5aa9e6",
    "penstock-full": "#a9d0f5",
    "kafka": "#444444",
    "kafka-flush": "#999999",
    "penstock-3": "#5aa9e6",
    "penstock-3-sync": "#1b6ca8",
    "kafka-3": "#444444",
    "kafka-3-flush": "#999999",
    "bare": "#d9a441",
    "bare-sync": "#f0d9a0",
}
PRODUCING = (
    "produce-1",
    "produce-16",
    "produce-cores",
    "everyday-raw",
    "java",
    "librdkafka",
    "everyday-max",
    "replicated",
)
SMALL = ("small", "small-16")
READING = ("consume-1", "consume-16", "cold-replay")
LATENCY = ("latency", "latency-synced", "steady", "everyday", "replicated-paced")


class Picture:
    """A bar chart of one figure of each contender in some rows."""

    def __init__(
        self,
        file: str,
        title: str,
        axis: str,
        rows: Sequence[str],
        key: str,
        share: str | None = None,
        log: bool = False,
    ) -> None:
        self.file = file
        self.title = title
        self.axis = axis
        self.rows = rows
        self.key = key
        self.share = share
        self.log = log


PICTURES = (
    Picture("produce", "Writing: MB/s of record values", "MB/s", PRODUCING, "mb_s"),
    Picture("small", "Requests of one 100-byte record", "requests/s", SMALL, "requests_s", log=True),
    Picture("consume", "Reading: MB/s of record values", "MB/s", READING, "mb_s"),
    Picture(
        "cpu",
        "CPU seconds of the broker per GB",
        "s/GB",
        (*PRODUCING, "produce-mixed", *READING),
        "cpu_s_per_gb",
        log=True,
    ),
    Picture("ack", "Ack p99 at the same pace", "ms", LATENCY, "ack_ms", "p99", log=True),
    Picture("end-to-end", "End to end p99 at the same pace", "ms", LATENCY, "end_to_end_ms", "p99", log=True),
    Picture("memory", "Memory of the broker at its peak", "MB", (*PRODUCING, *READING), "rss_peak_mb"),
)


def pictures(rows: Rows) -> list[tuple[str, str]]:
    """Titles and files of the pictures for which there are figures."""
    return [(each.title, f"side-by-side-{each.file}.svg") for each in PICTURES if _bars(each, rows)]


def draw(rows: Rows, folder: Path) -> None:
    """Draws all pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "penstock"  # the same figures make the same file
    for picture in PICTURES:
        if bars := _bars(picture, rows):
            _draw(picture, bars, folder / f"side-by-side-{picture.file}")


Bars = list[tuple[str, str, tuple[float, float, float]]]


def _bars(picture: Picture, rows: Rows) -> Bars:
    """The bars of a picture: row, contender and figure of each."""
    found: Bars = []
    for name in ROWS:
        if name not in rows or name not in picture.rows:
            continue
        for who, rounds in rows[name]["rounds"].items():
            figure = spread(rounds, picture.key, picture.share)
            if figure is not None:
                found.append((name, who, figure))
    return found


def _draw(picture: Picture, bars: Bars, path: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _, _ in bars))
    contenders = [who for who in CONTENDERS if any(who == each for _, each, _ in bars)]
    figure, axes = plt.subplots(figsize=(max(6.0, 1.6 * len(names) + 2.5), 4.2))
    width = 0.8 / len(contenders)
    for at, who in enumerate(contenders):
        places = [names.index(name) + (at - len(contenders) / 2 + 0.5) * width for name, each, _ in bars if each == who]
        found = [figure_ for _, each, figure_ in bars if each == who]
        middles = [each[0] for each in found]
        errors: Any = [
            [m - each[1] for m, each in zip(middles, found, strict=True)],
            [each[2] - m for m, each in zip(middles, found, strict=True)],
        ]
        axes.bar(places, middles, width, yerr=errors, capsize=2, color=COLOURS[who], label=CONTENDERS[who].title)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel=picture.axis, title=picture.title)
    if picture.log:
        axes.set_yscale("log")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None}, bbox_inches="tight")
    figure.savefig(path.with_suffix(".png"), dpi=120, bbox_inches="tight")
    plt.close(figure)
