"""Runs the tasks of a node, and stops the node when one of them fails.

Without group commit, for example, a node would keep its leaderships and acknowledge nothing; other brokers can take
over only once it is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from penstock.model.signal import Signal
from penstock.server.settings import CannotStart

logger = logging.getLogger("penstock.node")


class Supervisor:
    """See the module."""

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        """`on_failure` is called once, with the reason why the node cannot go on and should be stopped."""
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._has_failed = False
        self.is_stopping = False
        """Whether the node is being stopped; a task that fails then does not fail the node."""
        self.failing: Signal[[str]] = Signal()
        """Emitted with the reason when the node cannot go on, possibly several times."""

    def fail(self, sentence: str) -> None:
        """Reports that the node cannot go on."""
        self.failing(sentence)
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(sentence)

    def watch(self, work: Coroutine[None, None, None], name: str, *, is_vital: bool = True) -> "asyncio.Task[None]":
        """Runs a task until the node stops. If a vital task fails, the node fails."""
        task = asyncio.get_running_loop().create_task(work)
        self.observe(task, name, is_vital=is_vital)
        self._tasks.append(task)
        return task

    def observe(self, task: "asyncio.Task[None]", name: str, *, is_vital: bool = True) -> None:
        """Fails the node if a task that is stopped elsewhere ends with an unexpected exception."""
        task.add_done_callback(lambda done: self._ended(done, name, is_vital=is_vital))

    def _ended(self, task: "asyncio.Task[None]", name: str, *, is_vital: bool) -> None:
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, CannotStart):
            return
        if self._has_failed:  # a consequence of the first failure, which is reported
            return
        logger.critical("The %s failed by a mistake of ours: %r.", name, error, exc_info=error)
        if is_vital and not self.is_stopping:
            self.fail(f"The {name} failed by a mistake of ours ({error!r}): start the node again, and report this.")

    def cancel(self) -> None:
        """Cancels all tasks; `ended` waits for them."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Returns when no task runs any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
