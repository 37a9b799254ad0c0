"""Deadlines: every waiter is notified once and in time, cancelled ones are not; few timers for many waiters."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.server.loop.deadlines import AHEAD_S, GRAINS_PER_S, Deadlines
from penstock.simulator.loop import new_loop


class Waiter:
    """Records when it was notified."""

    def __init__(self, timeout_s: float, on_told: Callable[[], None] = lambda: None) -> None:
        self.deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.grain = 0
        self.told_s: list[float] = []
        self._on_told = on_told

    def time_is_up(self) -> None:
        self.told_s.append(asyncio.get_running_loop().time())
        self._on_told()


def test_everybody_is_told_once_and_at_most_a_grain_late() -> None:
    async def story() -> None:
        deadlines = Deadlines()
        waiters = [Waiter(number * 0.0137) for number in range(100)]
        for waiter in waiters:
            deadlines.add(waiter)
        await asyncio.sleep(5)
        for waiter in waiters:
            (told_s,) = waiter.told_s
            assert 0 <= told_s - waiter.deadline_s <= 1 / GRAINS_PER_S
        assert len(deadlines) == 0

    running(story)


def test_who_has_left_is_not_told() -> None:
    async def story() -> None:
        deadlines = Deadlines()
        gone = Waiter(1)
        first, second = Waiter(1), Waiter(1)
        for waiter in (gone, first, second):
            deadlines.add(waiter)
        deadlines.discard(gone)
        deadlines.discard(Waiter(1))
        first._on_told = lambda: deadlines.discard(second)
        second._on_told = lambda: deadlines.discard(first)
        await asyncio.sleep(5)
        deadlines.discard(gone)
        assert gone.told_s == []
        assert len(first.told_s) + len(second.told_s) == 1, "the one that was told first had the other leave"

    running(story)


def test_a_time_that_is_up_already_is_told_at_once() -> None:
    async def story() -> None:
        deadlines = Deadlines()
        late = Waiter(-3)
        deadlines.add(late)
        assert late.told_s == [], "not from within the call"
        await asyncio.sleep(0.001)
        assert len(late.told_s) == 1

    running(story)


def test_who_is_told_may_wait_again() -> None:
    async def story() -> None:
        deadlines = Deadlines()

        def again() -> None:
            if len(waiter.told_s) < 3:
                waiter.deadline_s += 1
                deadlines.add(waiter)

        waiter = Waiter(1, again)
        deadlines.add(waiter)
        await asyncio.sleep(10)
        assert len(waiter.told_s) == 3

    running(story)


def test_long_waits_leave_few_timers_behind() -> None:
    async def story() -> None:
        deadlines = Deadlines()
        patient = Waiter(1_000_000)
        deadlines.add(patient)
        for _ in range(10_000):
            waiter = Waiter(1_000_000)
            deadlines.add(waiter)
            deadlines.discard(waiter)
            await asyncio.sleep(0.07)
        assert len(deadlines._timers) <= AHEAD_S * GRAINS_PER_S + 2
        assert len(deadlines) == 1
        await asyncio.sleep(1_000_000)
        assert len(patient.told_s) == 1
        assert not deadlines._timers

    running(story)


def test_after_a_stop_nobody_is_told() -> None:
    async def story() -> None:
        deadlines = Deadlines()
        waiter = Waiter(1)
        deadlines.add(waiter)
        deadlines.stop()
        await asyncio.sleep(5)
        assert waiter.told_s == []

    running(story)


def running(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()
