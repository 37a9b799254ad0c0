"""Draws a run of the shop: which way its records go, and how far each table was when something was killed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 990, 560
PAPER, INK, FAINT, RED = "#fbfaf6", "#1f2a37", "#5b6775", "#b3261e"
COLOURS = {"clicks": "#5b7fb5", "orders": "#c98a1b", "payments": "#3f9468"}
LEFT, RIGHT, TOP, BOTTOM = 90, 890, 270, 510
FONT = "font-family=\"'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\""


@dataclass(frozen=True)
class Sample:
    """How far things were at a moment."""

    at_s: float
    written: int
    rows: dict[str, int]
    """By table."""


@dataclass(frozen=True)
class Story:
    """A run."""

    samples: Sequence[Sample]
    struck: Sequence[tuple[float, str]]
    dead_letters: int
    audits: Sequence[str]


def picture(story: Story) -> str:
    """The SVG, with paper of its own, so that it reads the same on a light page and on a dark one."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
    tip = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT} role="img">\n',
            "<title>A shop on Penstock and Spark</title>\n",
            f'<defs><marker id="tip" {tip}><path d="M0 0 8 4 0 8z" fill="{FAINT}"/></marker></defs>\n',
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{PAPER}"/>\n',
            *_flow(story),
            *_chart(story),
            "</svg>\n",
        ]
    )


# --- which way records go


def _flow(story: Story) -> Iterator[str]:
    last = story.samples[-1]
    for number, (name, colour) in enumerate(COLOURS.items()):
        y = 24 + 58 * number
        yield _box(30, y, 130, 44, colour, name, "generator")
        yield _arrow(160, y + 22, 218, y + 22)
        yield _box(220, y, 130, 44, colour, name, "topic")
        yield _arrow(350, y + 22, 418, 92)
        yield _arrow(580, 92, 648, y + 22)
        yield _box(650, y, 150, 44, colour, name, f"{last.rows.get(name, 0):,} rows, each once")
    yield _box(420, 52, 160, 80, "#d9efdf", "Spark", "two executors", ink=INK)
    yield _arrow(500, 132, 500, 196)
    yield _box(420, 198, 160, 44, "#f6dcd9", "shop.dlq", f"{story.dead_letters} that cannot be read", ink=INK)
    yield _arrow(800, 104, 838, 104)
    yield _arrow(800, 162, 838, 112)
    yield _box(840, 82, 130, 50, "#e9e2f3", "daily revenue", "a table, too", ink=INK)
    for number, line in enumerate(story.audits):
        audit = line.partition(":")[0]
        yield _text(650, 212 + 15 * number, f"{audit}: the table is the topic", 11, FAINT)


# --- how far they were


def _chart(story: Story) -> Iterator[str]:
    end_s = story.samples[-1].at_s
    most = max(1, *(each.written for each in story.samples))

    def place(at_s: float, count: float) -> tuple[float, float]:
        return LEFT + (RIGHT - LEFT) * at_s / end_s, BOTTOM - (BOTTOM - TOP) * count / most

    yield f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="{FAINT}"/>\n'
    for share in (0.5, 1.0):
        yield _text(LEFT - 8, place(0, most * share)[1] + 4, f"{most * share:,.0f}", 11, FAINT, "end")
    step_s = 5 if end_s <= 60 else 10
    for second in range(0, int(end_s) + 1, step_s):
        yield _text(place(second, 0)[0], BOTTOM + 16, f"{second} s", 11, FAINT, "middle")
    yield _line([place(each.at_s, each.written) for each in story.samples], FAINT, dashes="5 4")
    yield _text(LEFT + 8, TOP + 4, "records written (dashed) and rows in the tables", 12, INK)
    ends = {}
    for name, colour in COLOURS.items():
        points = [place(each.at_s, each.rows.get(name, 0)) for each in story.samples]
        yield _line(points, colour)
        ends[name] = (points[-1][1], colour)
    total = [place(each.at_s, sum(each.rows.values())) for each in story.samples]
    yield _line(total, INK, width=2.6)
    ends["all three"] = (total[-1][1], INK)
    yield from _names(ends)
    for number, (at_s, what) in enumerate(story.struck):
        x, _ = place(at_s, 0)
        yield f'<path d="M{x:.1f} {TOP + 12}V{BOTTOM}" stroke="{RED}" stroke-dasharray="2 3"/>\n'
        side, anchor = (-5, "end") if number == 0 else (5, "start")
        yield _text(x + side, TOP + 26 + 18 * number, what, 12, RED, anchor)
    yield _text(
        LEFT,
        HEIGHT - 18,
        "Drawn from a run, from the moment when all tables had their first rows to the last row.",
        11,
        FAINT,
    )


def _names(ends: dict[str, tuple[float, str]]) -> Iterator[str]:
    """Beside the ends of their lines, none on top of another."""
    lowest = float(HEIGHT)
    for name, (y, colour) in sorted(ends.items(), key=lambda each: -each[1][0]):
        lowest = min(y + 4, lowest - 15)
        yield _text(RIGHT + 6, lowest, name, 12, colour)


def _line(points: Sequence[tuple[float, float]], colour: str, width: float = 1.8, dashes: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    extra = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{extra}/>\n'


def _box(x: float, y: float, wide: float, high: float, fill: str, title: str, text: str, ink: str = "#ffffff") -> str:
    middle = x + wide / 2
    return (
        f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="8" fill="{fill}"/>\n'
        + _text(middle, y + high / 2 - 3, title, 14, ink, "middle")
        + _text(middle, y + high / 2 + 13, text, 11, ink, "middle")
    )


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{FAINT}" fill="none" marker-end="url(#tip)"/>\n'


def _text(x: float, y: float, text: str, size: int, colour: str, anchor: str = "start") -> str:
    look = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>\n'
