"""An audit as a page for a browser: one file, a chart of rows by hour, a strip for each partition, rows that differ."""

from collections.abc import Iterator
from datetime import datetime
from html import escape

from penstock.spark.lake.audit_text import Strip, shown_partitions
from penstock.spark.lake.auditing import NOTHING, Verdict

COLUMNS = 168
PARTITIONS_MAX = 64
ROWS_MAX = 100
LEFT, WIDE, BARS_HIGH, ROW_HIGH = 60, 900, 140, 14
GREEN, RED, GREY, DARK = "#2a9d6f", "#d1344b", "#c9ced6", "#2b2f36"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1000px;color:#2b2f36}"
    "td,th{padding:2px 12px;text-align:right}th{font-weight:600}.bad{color:#d1344b;font-weight:600}"
    "svg{font:11px system-ui,sans-serif}"
)


def page(verdict: Verdict, name: str, now: datetime) -> str:
    """The whole page."""
    is_same = not verdict.differing
    head = "The table is the topic." if is_same else f"{len(verdict.differing)} hours differ."
    sums = (
        f"{verdict.offsets:,} offsets = {verdict.log_rows:,} records that can be read + {verdict.bad:,} bad + "
        f"{verdict.empty:,} without a record; the table has {verdict.table_rows:,} rows"
    )
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p class='{'' if is_same else 'bad'}'>{head}</p>",
        f"<p>{now:%Y-%m-%d %H:%M} UTC, topic {escape(verdict.topic)}: {sums}.</p>",
        *(_chart(verdict) if verdict.places else ()),
        *_differences(verdict),
        *_table(verdict),
    ]
    body = "\n".join(parts)
    return f"<!doctype html><meta charset='utf-8'><title>{escape(name)}</title><style>{STYLE}</style>\n{body}\n"


def _chart(verdict: Verdict) -> Iterator[str]:
    strip = Strip(verdict, COLUMNS)
    partitions = shown_partitions(verdict, PARTITIONS_MAX)
    high = BARS_HIGH + 24 + ROW_HIGH * len(partitions)
    wide = WIDE / strip.count
    yield f"<svg viewBox='0 0 {LEFT + WIDE} {high}' role='img' aria-label='rows by hour, and where they differ'>"
    yield from _bars(verdict, strip, wide)
    yield f"<text x='{LEFT}' y='{BARS_HIGH + 14}' fill='{DARK}'>{escape(_caption(strip))}</text>"
    for row, partition in enumerate(partitions):
        top = BARS_HIGH + 20 + ROW_HIGH * row
        yield f"<text x='{LEFT - 8}' y='{top + 10}' text-anchor='end' fill='{DARK}'>{partition}</text>"
        for column in range(strip.count):
            found = strip.is_same(partition, column)
            if found is not None:
                colour = GREEN if found else RED
                yield _box(LEFT + column * wide, top, wide, ROW_HIGH - 2, colour)
    yield "</svg>"


def _bars(verdict: Verdict, strip: Strip, wide: float) -> Iterator[str]:
    """What the topic has in grey, and before it what the table has."""
    log, table = [0] * strip.count, [0] * strip.count
    for place in verdict.places:
        log[strip.column(place)] += verdict.log.get(place, NOTHING).rows
        table[strip.column(place)] += verdict.table.get(place, NOTHING).rows
    most = max(*log, *table, 1)
    for column in range(strip.count):
        for count, share, colour in ((log[column], 1.0, GREY), (table[column], 0.6, GREEN)):
            high = (BARS_HIGH - 20) * count / most
            yield _box(LEFT + column * wide, BARS_HIGH - high, wide * share, high, colour)
    yield f"<text x='{LEFT - 8}' y='24' text-anchor='end' fill='{DARK}'>{most:,}</text>"


def _box(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(0.5, wide - 0.5):.1f}' height='{high:.1f}' fill='{colour}'/>"


def _caption(strip: Strip) -> str:
    return f"rows by hour (grey: topic, green: table) and partitions below; {strip.caption}"


def _differences(verdict: Verdict) -> Iterator[str]:
    if not verdict.differences:
        return
    yield "<h2>Rows that differ</h2><table><tr><th>what</th><th>partition</th><th>offset</th><th>in the table</th></tr>"
    for each in verdict.differences[:ROWS_MAX]:
        cells = f"<td>{each.partition}</td><td>{each.offset}</td><td>{each.table_rows} times</td>"
        yield f"<tr><td class='bad'>{each.kind}</td>{cells}</tr>"
    yield "</table>"
    if verdict.has_more or len(verdict.differences) > ROWS_MAX:
        yield "<p>… and more.</p>"


def _table(verdict: Verdict) -> Iterator[str]:
    differing = set(verdict.differing)
    head = "<th>partition</th><th>in the topic</th><th>in the table</th><th>first</th><th>last</th><th>differ</th>"
    yield f"<h2>By partition</h2><table><tr>{head}</tr>"
    for partition in shown_partitions(verdict, PARTITIONS_MAX):
        places = [each for each in verdict.places if each.partition == partition]
        logs = [verdict.log[each] for each in places if each in verdict.log]
        counts = [sum(side.get(each, NOTHING).rows for each in places) for side in (verdict.log, verdict.table)]
        first = min((each.first for each in logs), default="")
        last = max((each.last for each in logs), default="")
        wrong = sum(each in differing for each in places)
        yield (
            f"<tr><td>{partition}</td><td>{counts[0]:,}</td><td>{counts[1]:,}</td><td>{first}</td><td>{last}</td>"
            f"<td class='{'bad' if wrong else ''}'>{wrong or '-'}</td></tr>"
        )
    yield "</table>"
