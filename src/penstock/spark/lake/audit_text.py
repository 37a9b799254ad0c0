"""Renders an audit for the terminal: a table by partition, a strip of hours, and the rows that differ."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from penstock.spark.lake.auditing import Part, Verdict, moment_of
from penstock.spark.lake.fingerprints import Place

WIDTH = 72
PARTITIONS_MAX = 20
ROWS_MAX = 20
SAME, OTHER, EMPTY = "█", "X", "·"


def report(verdict: Verdict, name: str) -> str:
    """The report; it takes at most a minute to read, however large the topic is."""
    return "\n".join([verdict.line(name), "", *_lines(verdict)])


def _lines(verdict: Verdict) -> Iterator[str]:
    if not verdict.places:
        return
    yield f"{'partition':>9}  {'in the topic':>14}  {'in the table':>14}  {'hours':>6}  {'differ':>6}"
    parts = verdict.parts()
    shown = shown_parts(parts, PARTITIONS_MAX)
    for each in shown:
        counts = f"{each.log_rows:>14,}  {each.table_rows:>14,}  {each.hours:>6,}"
        yield f"{each.partition:>9}  {counts}  {each.differing_hours or '-':>6}"
    if len(parts) > len(shown):
        yield f"{'':9}  and {len(parts) - len(shown)} partitions more, of which those above are the ones to look at"
    yield ""
    strip = Strip(verdict)
    for each in shown:
        yield f"{each.partition:>9}  {strip.text(each.partition)}"
    yield f"{'':9}  {strip.caption}"
    if verdict.differences:
        yield ""
        yield from map(str, verdict.differences[:ROWS_MAX])
        if verdict.has_more or len(verdict.differences) > ROWS_MAX:
            yield "… and more: the table of audits has the hours"


def shown_parts(parts: Iterable[Part], at_most: int) -> list[Part]:
    """At most `at_most` partitions; those that differ are chosen first."""
    first = sorted(parts, key=lambda each: (not each.differing_hours, each.partition))
    return sorted(first[:at_most])


class Strip:
    """Hours from left to right, several in one column if there are very many."""

    def __init__(self, verdict: Verdict, width: int = WIDTH) -> None:
        places = verdict.places
        hours = [each.hour for each in places]
        self.first = min(hours)
        self.step = -(-(max(hours) - self.first + 1) // width)
        self.count = -(-(max(hours) - self.first + 1) // self.step)
        self._last = max(hours)
        differing = set(verdict.differing)
        self._cells: dict[tuple[int, int], bool] = {}
        for each in places:
            cell = (each.partition, self.column(each))
            self._cells[cell] = self._cells.get(cell, True) and each not in differing

    def column(self, place: Place) -> int:
        """The column that shows an hour."""
        return (place.hour - self.first) // self.step

    def is_same(self, partition: int, column: int) -> bool | None:
        """Whether the sides are equal; None if neither has rows."""
        return self._cells.get((partition, column))

    def text(self, partition: int) -> str:
        """The strip of a partition as characters."""
        letters = {None: EMPTY, True: SAME, False: OTHER}
        return "".join(letters[self.is_same(partition, column)] for column in range(self.count))

    def moment(self, column: int) -> datetime:
        """The time at which a column begins."""
        return moment_of(self.first + column * self.step)

    @property
    def hours(self) -> str:
        """The time span of a column."""
        return "an hour" if self.step == 1 else f"{self.step} hours"

    @property
    def caption(self) -> str:
        """The time range and the legend of the strip."""
        begin, end = moment_of(self.first), moment_of(self._last)
        return f"{begin:%Y-%m-%d %H}h to {end:%Y-%m-%d %H}h UTC, {self.hours} each: {SAME} the same, {OTHER} differs"
