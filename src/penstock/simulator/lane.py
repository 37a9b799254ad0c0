"""Lanes: whose callbacks these are. A lane is one life of one node.

The lane travels in the context of every task and callback, so whatever a node starts belongs to it. A held lane's
callbacks wait and come in a burst; an ended lane's callbacks never run again, as after SIGKILL.
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
        """Strong references: a task must not vanish when the garbage collector likes. In order of creation."""
        self.prune_at = 64
        self.context = Context()
        self.context.run(LANE.set, self)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keeps a task, and forgets those that are done with nothing left to tell."""
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) >= self.prune_at:
            self.tasks = [each for each in tasks if not each.done() or has_unseen_error(each)]
            self.prune_at = max(64, 2 * len(self.tasks))

    def pending(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done, oldest first."""
        return [task for task in self.tasks if not task.done()]

    def unseen_errors(self) -> list[asyncio.Task[Any]]:
        """Tasks that failed without anybody looking."""
        return [task for task in self.tasks if has_unseen_error(task)]

    def close_tasks(self) -> None:
        """Unwinds what is suspended, so that nothing is left to the garbage collector. Errors on the way are void."""
        for _ in range(CLEANUPS_MAX):  # whoever cleans up may start tasks for it
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
        with suppress(BaseException):  # it is dead; what its cleanup thinks of that interests nobody
            self.context.run(coroutine.close)


LANE: ContextVar[Lane] = ContextVar("LANE")


def has_unseen_error(task: asyncio.Task[Any]) -> bool:
    """Whether it failed and nobody asked for the exception yet."""
    return bool(task._log_traceback)
