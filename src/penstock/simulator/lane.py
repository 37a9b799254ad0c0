"""Lanes: the owners of callbacks. A lane is one life of one node.

The lane is part of the context of every task and callback, so everything that a node starts belongs to it. The
callbacks of a held lane wait and run in a burst; those of an ended lane never run again, as after SIGKILL.
"""

import asyncio
import enum
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, Final

CLEANUPS_MAX: Final = 5


class Gate(enum.Enum):
    """Whether a lane's callbacks run."""

    OPEN = "open"
    HELD = "held"
    ENDED = "ended"


class Lane:
    """One life of one node, or the world itself."""

    __slots__ = ("context", "gate", "held", "name", "prune_at", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = Gate.OPEN
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        """Strong references, so that the garbage collector does not remove tasks. In order of creation."""
        self.prune_at = 64
        self.context = Context()
        self.context.run(LANE.set, self)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keeps a task, and drops finished ones without an unseen error."""
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) >= self.prune_at:
            self.tasks = [each for each in tasks if not each.done() or has_unseen_error(each)]
            self.prune_at = max(64, 2 * len(self.tasks))

    def pending(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done, oldest first."""
        return [task for task in self.tasks if not task.done()]

    def unseen_errors(self) -> list[asyncio.Task[Any]]:
        """Failed tasks whose exception was not retrieved."""
        return [task for task in self.tasks if has_unseen_error(task)]

    def close_tasks(self) -> None:
        """Unwinds suspended tasks, so that nothing is left to the garbage collector. Errors are ignored."""
        for _ in range(CLEANUPS_MAX):  # cleanup code may start new tasks
            tasks, self.tasks = self.tasks, []
            for task in tasks:
                self._close(task)

    def _close(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            if has_unseen_error(task):
                task.exception()
            return
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine: Any = task.get_coro()
        with suppress(BaseException):  # errors in the cleanup of a dead task are ignored
            self.context.run(coroutine.close)


LANE: ContextVar[Lane] = ContextVar("LANE")


def has_unseen_error(task: asyncio.Task[Any]) -> bool:
    """Whether it failed and its exception was not retrieved yet."""
    return bool(task._log_traceback)
