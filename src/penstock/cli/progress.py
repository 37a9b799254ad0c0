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
    """Counts records. `total` says how much work there is: records, unless `add` is told another measure."""

    def __init__(self, what: str, total: int | None = None, *, is_shown: bool | None = None) -> None:
        self.count = 0
        self._done = 0
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
            self._show()
            self._bar[0].stop()

    def add(self, count: int = 1, done: int | None = None) -> None:
        """So many more records, and so much of the work."""
        before = self.count
        self.count += count
        self._done += count if done is None else done
        if not self._is_shown or before // STEP == self.count // STEP:
            return
        if self._bar is None and time.monotonic() - self._begun_s > PATIENCE_S:
            self._bar = self._open()
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, completed=self._done, records=self.count)

    def _open(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        progress = Progress(
            TextColumn("{task.fields[records]:,} records {task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        progress.start()
        return progress, progress.add_task(self._what, total=self._total, records=self.count)
