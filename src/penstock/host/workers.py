"""Worker threads for blocking calls. They share the interpreter: computations belong in another process.

An executor is not used because every acknowledgement waits for the cost of handing work to threads: a round of group
commit does so twice.
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
"""How long a computing thread keeps the interpreter from the event loop, which needs it after every system call."""


class ThreadWorkers:
    """At most `threads_max` threads, started when first needed; excess work is queued in order."""

    __slots__ = ("_idle", "_is_closed", "_queue", "_threads", "_threads_max")

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._threads: list[Thread] = []
        self._idle = 0
        """Idle threads minus queued work; updated only by the loop's thread."""
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._is_closed = False

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> "asyncio.Future[T]":
        """Result or exception of `work`. Work that has begun runs to its end, even if its future is cancelled."""
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
        """Yields the interpreter by a short sleep, during which the event loop can have it without waiting."""
        time.sleep(BREATH_S)

    def switch_quickly(self) -> None:
        """Shortens the switch interval of the process, which should be a node's, so that the loop waits less."""
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
            with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
                future.get_loop().call_soon_threadsafe(self._deliver, future, result, failure)
            del work, future, order, result, failure  # no reference is kept while waiting for more work

    def _deliver(self, future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
        self._idle += 1
        if future.cancelled():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
