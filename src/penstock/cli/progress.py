"""Progress of long jobs, on stderr if it is a terminal; nothing for a job that ends soon."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress, ProgressColumn, TaskID

PATIENCE_S = 1.0
"""Nothing is shown for a count that takes no longer."""
STEP = 200


class _Bar:
    """One progress line, from the first `_draw` until the end of the block; none without a terminal."""

    def __init__(self, what: str, *, is_shown: bool | None = None) -> None:
        self._what = what
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._drawn: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn is not None:
            self._drawn[0].stop()

    def _draw(self, **values: Any) -> None:
        if self._drawn is not None:
            progress, task = self._drawn
            progress.update(task, **values)
            return
        from rich.console import Console
        from rich.progress import Progress

        progress = Progress(*self._columns(), console=Console(stderr=True))
        progress.start()
        self._drawn = progress, progress.add_task(self._what, **values)

    def _columns(self) -> "Sequence[ProgressColumn]":
        raise NotImplementedError


class Counter(_Bar):
    """Counts records. `total` is the amount of work: in records, unless `add` is given another measure."""

    def __init__(self, what: str, total: int | None = None, *, is_shown: bool | None = None) -> None:
        super().__init__(what, is_shown=is_shown)
        self.count = 0
        self._done = 0
        self._total = total
        self._begun_s = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn is not None:
            self._show()
        super().__exit__(kind, error, trace)

    def add(self, count: int = 1, done: int | None = None) -> None:
        """Adds records, and the work that was done for them."""
        before = self.count
        self.count += count
        self._done += count if done is None else done
        if not self._is_shown or before // STEP == self.count // STEP:
            return
        if self._drawn is not None or time.monotonic() - self._begun_s > PATIENCE_S:
            self._show()

    def _show(self) -> None:
        self._draw(total=self._total, completed=self._done, records=self.count)

    def _columns(self) -> "Sequence[ProgressColumn]":
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        records = TextColumn("{task.fields[records]:,} records {task.description}")
        return records, BarColumn(), TaskProgressColumn(), TimeElapsedColumn()


class ByteBar(_Bar):
    """Progress in bytes: done, total, rate and remaining time."""

    def show(self, done_bytes: int, total_bytes: int, rate: float, eta_s: float | None) -> None:
        """Shows the current state; the caller measures the rate."""
        if self._is_shown:
            self._draw(total=max(1, total_bytes), completed=done_bytes, pace=pace_text(rate, eta_s))

    def _columns(self) -> "Sequence[ProgressColumn]":
        from rich.progress import BarColumn, DownloadColumn, TaskProgressColumn, TextColumn

        pace = TextColumn("{task.fields[pace]}")
        return TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn(), pace


class RunBar(_Bar):
    """The elapsed share of a run's time, and its results so far."""

    def __init__(self, total_s: float, *, is_shown: bool | None = None) -> None:
        super().__init__("", is_shown=is_shown)
        self._total_s = total_s

    def show(self, done_s: float, so_far: str) -> None:
        """Shows the current state."""
        if self._is_shown:
            self._draw(total=self._total_s, completed=min(done_s, self._total_s), so_far=so_far)

    def _columns(self) -> "Sequence[ProgressColumn]":
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        return TextColumn("{task.fields[so_far]}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()


def pace_text(rate: float, eta_s: float | None) -> str:
    """`12.5 MB/s, 3 min 20 s left`, or a note if the remaining time is unknown."""
    if eta_s is None:
        return "nothing is copied at the moment"
    return f"{bytes_text(rate)}/s, {seconds_text(eta_s)} left"


def bytes_text(count: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A duration in one or two readable units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def say(sentence: str) -> None:
    """Prints a sentence if stderr is a terminal, unless it is the same as the last one."""
    if sys.stderr.isatty() and sentence != _said.get("last"):
        typer.echo(sentence, err=True)
        _said["last"] = sentence


_said: dict[str, str] = {}
