"""An audit for people: a table by partition, a strip of hours, and the rows that differ. On the terminal."""

from collections.abc import Iterator

from penstock.spark.lake.auditing import NOTHING, Verdict, moment_of
from penstock.spark.lake.fingerprints import Place

WIDTH = 72
PARTITIONS_MAX = 20
ROWS_MAX = 20
SAME, OTHER, EMPTY = "█", "X", "·"


def report(verdict: Verdict, name: str) -> str:
    """A minute's reading at most, however large the topic is."""
    return "\n".join([verdict.line(name), "", *_lines(verdict)])


def _lines(verdict: Verdict) -> Iterator[str]:
    if not verdict.places:
        return
    yield f"{'partition':>9}  {'in the topic':>14}  {'in the table':>14}  {'hours':>6}  {'differ':>6}"
    partitions = shown_partitions(verdict, PARTITIONS_MAX)
    differing = set(verdict.differing)
    for partition in partitions:
        places = [each for each in verdict.places if each.partition == partition]
        log = sum(verdict.log.get(each, NOTHING).rows for each in places)
        table = sum(verdict.table.get(each, NOTHING).rows for each in places)
        wrong = sum(each in differing for each in places)
        yield f"{partition:>9}  {log:>14,}  {table:>14,}  {len(places):>6,}  {wrong or '-':>6}"
    hidden = len({each.partition for each in verdict.places}) - len(partitions)
    if hidden:
        yield f"{'':9}  and {hidden} partitions more, of which those above are the ones to look at"
    yield ""
    strip = Strip(verdict)
    for partition in partitions:
        yield f"{partition:>9}  {strip.text(partition)}"
    yield f"{'':9}  {strip.caption}"
    if verdict.differences:
        yield ""
        yield from map(str, verdict.differences[:ROWS_MAX])
        if verdict.has_more or len(verdict.differences) > ROWS_MAX:
            yield "… and more: the table of audits has the hours"


def shown_partitions(verdict: Verdict, at_most: int) -> list[int]:
    """All, or those that differ before the others."""
    differing = {each.partition for each in verdict.differing}
    every = sorted({each.partition for each in verdict.places}, key=lambda each: (each not in differing, each))
    return sorted(every[:at_most])


class Strip:
    """Hours from left to right, several in one column where there are very many."""

    def __init__(self, verdict: Verdict, width: int = WIDTH) -> None:
        hours = [each.hour for each in verdict.places]
        self.first = min(hours)
        self.step = -(-(max(hours) - self.first + 1) // width)
        self.count = -(-(max(hours) - self.first + 1) // self.step)
        self._last = max(hours)
        differing = set(verdict.differing)
        self._cells: dict[tuple[int, int], bool] = {}
        for each in verdict.places:
            cell = (each.partition, self.column(each))
            self._cells[cell] = self._cells.get(cell, True) and each not in differing

    def column(self, place: Place) -> int:
        """Where an hour is shown."""
        return (place.hour - self.first) // self.step

    def is_same(self, partition: int, column: int) -> bool | None:
        """None where there is nothing."""
        return self._cells.get((partition, column))

    def text(self, partition: int) -> str:
        """As letters."""
        letters = {None: EMPTY, True: SAME, False: OTHER}
        return "".join(letters[self.is_same(partition, column)] for column in range(self.count))

    @property
    def caption(self) -> str:
        """What the strip shows."""
        hours = "an hour" if self.step == 1 else f"{self.step} hours"
        begin, end = moment_of(self.first), moment_of(self._last)
        return f"{begin:%Y-%m-%d %H}h to {end:%Y-%m-%d %H}h UTC, {hours} each: {SAME} the same, {OTHER} differs"
