"""How far a long job is, on stderr, for whoever watches; nothing when nobody does or when it is over soon."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0
"""Nothing is shown of what takes no longer."""
STEP = 200


class Counter:
    """Counts records."""

    def __init__(self, what: str, total: int | None = None, *, is_shown: bool | None = None) -> None:
        self.count = 0
        self._what = what
        self._total = total
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._begun_s = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def add(self, count: int = 1) -> None:
        """So many more."""
        before = self.count
        self.count += count
        if not self._is_shown or before // STEP == self.count // STEP:
            return
        if self._bar is None and time.monotonic() - self._begun_s > PATIENCE_S:
            self._bar = self._open()
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=self.count)

    def _open(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        progress = Progress(
            TextColumn(self._what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)
        )
        progress.start()
        return progress, progress.add_task(self._what, total=self._total)
