"""Worker threads: work runs in order on a bounded number of threads, and its result reaches the waiter."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.host.workers import ThreadWorkers


def with_workers(story: Callable[[ThreadWorkers], Coroutine[Any, Any, None]], threads_max: int = 2) -> ThreadWorkers:
    workers = ThreadWorkers(threads_max)

    async def main() -> None:
        async with asyncio.timeout(20):
            await story(workers)

    try:
        asyncio.run(main())
    finally:
        workers.close()
    return workers


def test_results_and_errors_come_back() -> None:
    async def story(workers: ThreadWorkers) -> None:
        assert await workers.run(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        assert await workers.run(threading.get_ident) != threading.get_ident()

    with_workers(story)


def test_work_waits_for_a_thread_in_order_and_never_has_more_than_allowed() -> None:
    running = 0
    most = 0
    began: list[int] = []
    lock = threading.Lock()
    go_on = threading.Event()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            began.append(number)
        go_on.wait(10)
        with lock:
            running -= 1
        return number

    async def story(workers: ThreadWorkers) -> None:
        waiting = [workers.run(lambda number=number: work(number)) for number in range(10)]  # type: ignore[misc]
        while len(began) < 2:
            await asyncio.sleep(0.001)
        go_on.set()
        assert await asyncio.gather(*waiting) == list(range(10))

    with_workers(story)
    assert most == 2
    assert began[2:] == sorted(began[2:])


def test_threads_are_started_only_when_all_are_busy() -> None:
    async def story(workers: ThreadWorkers) -> None:
        assert workers._threads == []
        for _ in range(20):
            await workers.run(lambda: None)
        assert len(workers._threads) == 1

    with_workers(story, threads_max=4)


def test_what_nobody_waits_for_any_more_ends_if_it_has_begun_and_is_left_out_if_not() -> None:
    done: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        go_on.wait(10)
        done.append("slow")

    async def story(workers: ThreadWorkers) -> None:
        first = workers.run(slow)
        second = workers.run(lambda: done.append("second"))
        while not began.is_set():
            await asyncio.sleep(0.001)
        first.cancel()
        second.cancel()
        go_on.set()
        await workers.run(lambda: done.append("third"))

    with_workers(story, threads_max=1)
    assert done == ["slow", "third"]


def test_closing_waits_for_what_has_begun_and_cancels_the_rest() -> None:
    done: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        go_on.wait(10)
        done.append("slow")

    async def story() -> None:
        workers = ThreadWorkers(1)
        first, second = workers.run(slow), workers.run(lambda: done.append("second"))
        while not began.is_set():
            await asyncio.sleep(0.001)
        threading.Timer(0.05, go_on.set).start()
        workers.close()
        assert done == ["slow"]
        assert second.cancelled()
        await first
        with pytest.raises(RuntimeError):
            workers.run(lambda: None)

    asyncio.run(story())


def test_an_outcome_that_comes_after_the_loop_has_closed_harms_nobody() -> None:
    go_on = threading.Event()
    workers = ThreadWorkers(1)

    async def story() -> None:
        workers.run(lambda: go_on.wait(10))
        await asyncio.sleep(0.01)

    asyncio.run(story())
    go_on.set()
    workers.close()
