"""Worker threads for calls that block. They share the interpreter: work that computes belongs in another process."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS_MAX = 4


class ThreadWorkers:
    """At most so many threads, started when they are first needed; what they cannot take waits in order."""

    __slots__ = ("_pool",)

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="penstock-worker")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """What `work` returns or raises. Work that has begun ends, even if nobody waits for it any more."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Waits for work that has begun; cancels the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
