"""Worker threads for calls that block. They share the interpreter: work that computes belongs in another process.

The threads are our own and not an executor's: a round of group commit hands over two pieces of work, and what handing
over costs is what every acknowledgement waits for.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from penstock.host.garbage import uncollected

T = TypeVar("T")

THREADS_MAX = 4
BREATH_S = 0.000_05
SWITCH_S = 0.000_2
"""How long a thread that computes keeps the interpreter from the event loop, which wants it after every system call."""


class ThreadWorkers:
    """At most so many threads, started when they are first needed; what they cannot take waits in order."""

    __slots__ = ("_idle", "_is_closed", "_queue", "_threads", "_threads_max")

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._threads: list[Thread] = []
        self._idle = 0
        """Threads that have nothing to do, less the work that waits for one; only the loop's thread counts."""
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._is_closed = False

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> "asyncio.Future[T]":
        """What `work` returns or raises. Work that has begun ends, even if nobody waits for it any more."""
        if makes_many:
            work = partial(uncollected, work)
        if self._is_closed:
            raise RuntimeError("the workers have gone home")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._idle <= 0 and len(self._threads) < self._threads_max:
            self._start_one()
        self._idle -= 1
        self._queue.put((work, future))
        return future

    def _start_one(self) -> None:
        thread = Thread(target=self._work, name=f"penstock-worker-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        self._idle += 1
        thread.start()

    def breathe(self) -> None:
        """Lets the loop have the interpreter; one that wants it waits for nothing while this thread sleeps."""
        time.sleep(BREATH_S)

    def switch_quickly(self) -> None:
        """For the whole process, which should be a node's: threads that compute let the event loop go first."""
        sys.setswitchinterval(SWITCH_S)

    def close(self) -> None:
        """Waits for work that has begun; cancels the rest."""
        self._is_closed = True
        with suppress(Empty):
            while (order := self._queue.get_nowait()) is not None:
                order[1].cancel()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (order := self._queue.get()) is not None:
            work, future = order
            result, failure = None, None
            if not future.cancelled():
                try:
                    result = work()
                except BaseException as error:
                    failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(self._deliver, future, result, failure)
            del work, future, order, result, failure  # nothing is kept alive while more work is waited for

    def _deliver(self, future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
        self._idle += 1
        if future.cancelled():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
