"""Renders an audit as one HTML file: a chart of rows by hour, a strip for each partition, and rows that differ.

Differences are stated first. In the chart they are red and, if there is space, crossed out, for colour-blind readers.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from html import escape

from penstock.spark.lake.audit_text import Strip, shown_parts
from penstock.spark.lake.auditing import NOTHING, Verdict

COLUMNS = 168
PARTITIONS_MAX = 64
ROWS_MAX = 100
LEFT, WIDE, BARS_HIGH, ROW_HIGH = 76, 900, 140, 14
TITLE_HIGH, AXIS_HIGH = 24, 22
TICKS = 6
CROSS_WIDE_MIN = 6.0
GREEN, RED, GREY, DARK = "#2a9d6f", "#d1344b", "#c9ced6", "#2b2f36"
FONT = "font-family='system-ui,sans-serif' font-size='11'"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1000px;color:#2b2f36}"
    "td,th{padding:2px 12px;text-align:right}th{font-weight:600}.bad{color:#d1344b;font-weight:600}"
)


def page(verdict: Verdict, name: str, now: datetime) -> str:
    """The whole page."""
    is_same = not verdict.differing
    sums = (
        f"{verdict.offsets:,} offsets = {verdict.log_rows:,} records that can be read + {verdict.bad:,} bad + "
        f"{verdict.empty:,} without a record; the table has {verdict.table_rows:,} rows"
    )
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p class='{'' if is_same else 'bad'}'>{_head(verdict)}</p>",
        f"<p>{now:%Y-%m-%d %H:%M} UTC, topic {escape(verdict.topic)}: {sums}.</p>",
        *(_chart(verdict) if verdict.places else ()),
        *_differences(verdict),
        *_table(verdict),
    ]
    body = "\n".join(parts)
    return f"<!doctype html><meta charset='utf-8'><title>{escape(name)}</title><style>{STYLE}</style>\n{body}\n"


def _head(verdict: Verdict) -> str:
    if not verdict.differing:
        return "The table is the topic."
    hours = f"{len(verdict.differing):,} of {len(verdict.places):,} hours"
    kinds = Counter(each.kind for each in verdict.differences)
    rows = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    more = "at least " if verdict.has_more else ""
    return f"The table is not the topic: {more}{rows or 'rows'}, in {hours} of partitions."


def _chart(verdict: Verdict) -> Iterator[str]:
    strip = Strip(verdict, COLUMNS)
    partitions = [each.partition for each in shown_parts(verdict.parts(), PARTITIONS_MAX)]
    below = TITLE_HIGH + BARS_HIGH + AXIS_HIGH
    size = f"xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {LEFT + WIDE + 4} {below + ROW_HIGH * len(partitions)}'"
    yield f"<svg {size} {FONT} role='img' aria-label='rows by hour, and where they differ'>"
    title = f"rows in {strip.hours} (grey: missing in the table); below, by partition: green the same, red differs"
    yield _text(LEFT, 14, title)
    yield from _bars(verdict, strip)
    yield from _axis(strip)
    for row, partition in enumerate(partitions):
        yield from _cells(strip, partition, below + ROW_HIGH * row)
    yield "</svg>"


def _bars(verdict: Verdict, strip: Strip) -> Iterator[str]:
    """Rows on both sides in green, and above them rows only in the topic in grey or only in the table in red."""
    log, table = [0] * strip.count, [0] * strip.count
    for place in verdict.places:
        log[strip.column(place)] += verdict.log.get(place, NOTHING).rows
        table[strip.column(place)] += verdict.table.get(place, NOTHING).rows
    most = max(*log, *table, 1)
    for column, (expected, found) in enumerate(zip(log, table, strict=True)):
        surplus = RED if found > expected else GREY
        for count, colour in ((max(expected, found), surplus), (min(expected, found), GREEN)):
            high = BARS_HIGH * count / most
            yield _box(strip, column, TITLE_HIGH + BARS_HIGH - high, high, colour)
    yield _text(LEFT - 8, TITLE_HIGH + 10, f"{most:,}", "end")


def _axis(strip: Strip) -> Iterator[str]:
    for tick in range(0, strip.count, -(-strip.count // TICKS)):
        yield _text(_left(strip, tick), TITLE_HIGH + BARS_HIGH + 14, f"{strip.moment(tick):%Y-%m-%d %H}h UTC")


def _cells(strip: Strip, partition: int, top: float) -> Iterator[str]:
    yield _text(LEFT - 8, top + 10, f"partition {partition}", "end")
    for column in range(strip.count):
        is_same = strip.is_same(partition, column)
        if is_same is not None:
            yield _box(strip, column, top, ROW_HIGH - 2, GREEN if is_same else RED)
        if is_same is False and WIDE / strip.count >= CROSS_WIDE_MIN:
            yield _text(_left(strip, column + 0.5), top + 10, "×", "middle", "white")


def _left(strip: Strip, column: float) -> float:
    return LEFT + WIDE * column / strip.count


def _box(strip: Strip, column: int, top: float, high: float, colour: str) -> str:
    wide = max(0.5, WIDE / strip.count - 0.5)
    left = _left(strip, column)
    return f"<rect x='{left:.1f}' y='{top:.1f}' width='{wide:.1f}' height='{high:.1f}' fill='{colour}'/>"


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = DARK) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}'>{escape(text)}</text>"


def _differences(verdict: Verdict) -> Iterator[str]:
    if not verdict.differences:
        return
    yield "<h2>Rows that differ</h2><table><tr><th>what</th><th>partition</th><th>offset</th><th>in the table</th></tr>"
    for each in verdict.differences[:ROWS_MAX]:
        cells = f"<td>{each.partition}</td><td>{each.offset}</td><td>{_times(each.table_rows)}</td>"
        yield f"<tr><td class='bad'>{each.kind}</td>{cells}</tr>"
    yield "</table>"
    if verdict.has_more or len(verdict.differences) > ROWS_MAX:
        yield "<p>… and more.</p>"


def _times(count: int) -> str:
    return {0: "not there", 1: "once"}.get(count, f"{count} times")


def _table(verdict: Verdict) -> Iterator[str]:
    head = "<th>partition</th><th>in the topic</th><th>in the table</th><th>first</th><th>last</th><th>differ</th>"
    yield f"<h2>By partition</h2><table><tr>{head}</tr>"
    for each in shown_parts(verdict.parts(), PARTITIONS_MAX):
        ends = f"<td>{_shown(each.first)}</td><td>{_shown(each.last)}</td>"
        wrong = f"<td class='{'bad' if each.differing_hours else ''}'>{each.differing_hours or '-'}</td>"
        yield f"<tr><td>{each.partition}</td><td>{each.log_rows:,}</td><td>{each.table_rows:,}</td>{ends}{wrong}</tr>"
    yield "</table>"


def _shown(offset: int | None) -> str:
    return "" if offset is None else str(offset)
