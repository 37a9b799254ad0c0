"""Asyncio behaves on virtual time as on real time, without waiting."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from penstock.simulator.errors import Deadlock, Forbidden, SimulationError, TooManyEvents, Unhandled
from penstock.simulator.loop import START_S, VirtualLoop


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    real_s = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3_600))
    assert loop.time() == START_S + 3_600
    assert time.monotonic() - real_s < 60


def test_timers_fire_by_time_and_then_in_the_order_of_asking(loop: VirtualLoop) -> None:
    seen: list[str] = []
    loop.call_later(2, seen.append, "d")
    loop.call_later(1, seen.append, "b")
    loop.call_later(1, seen.append, "c")
    loop.call_soon(seen.append, "a")
    loop.call_at(START_S - 5, seen.append, "past")
    loop.run_until_complete(asyncio.sleep(3))
    assert seen == ["a", "past", "b", "c", "d"]


def test_what_a_callback_asks_for_runs_after_what_is_ready(loop: VirtualLoop) -> None:
    seen: list[int] = []
    loop.call_soon(lambda: loop.call_soon(seen.append, 3))
    loop.call_soon(seen.append, 1)
    loop.call_soon(seen.append, 2)
    loop.run_until_complete(asyncio.sleep(0.1))
    assert seen == [1, 2, 3]


def test_a_cancelled_timer_does_not_fire_and_holds_nothing_up(loop: VirtualLoop) -> None:
    handles = [loop.call_later(100, pytest.fail, "fired") for _ in range(1_000)]
    for handle in handles:
        handle.cancel()
        handle.cancel()
    assert all(handle.cancelled() for handle in handles)
    assert len(loop._timers) < 300, "cancelled timers are swept up"
    soon = loop.call_soon(pytest.fail, "ran")
    soon.cancel()
    loop.run_until_complete(asyncio.sleep(1))
    assert loop.time() == START_S + 1


def test_a_timer_knows_its_time(loop: VirtualLoop) -> None:
    assert loop.call_later(5, print).when() == START_S + 5
    with pytest.raises(ValueError, match="needs a time"):
        loop.call_later(float("nan"), print)


def test_tasks_gather_in_order(loop: VirtualLoop) -> None:
    async def slow(value: int) -> int:
        await asyncio.sleep(10 - value)
        return value

    async def main() -> list[int]:
        return await asyncio.gather(*(slow(value) for value in range(5)))

    assert loop.run_until_complete(main()) == [0, 1, 2, 3, 4]
    assert loop.time() == START_S + 10


def test_gather_hands_over_an_error(loop: VirtualLoop) -> None:
    async def bad() -> None:
        await asyncio.sleep(1)
        raise KeyError("bad")

    async def main() -> tuple[object, object]:
        return await asyncio.gather(bad(), asyncio.sleep(2, "good"), return_exceptions=True)

    first, second = loop.run_until_complete(main())
    assert isinstance(first, KeyError)
    assert second == "good"


def test_cancellation_reaches_the_task(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def sleeper() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(sleeper())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_until_complete(main())
    assert seen == ["cancelled"]
    assert loop.time() == START_S + 1


def test_wait_for_and_timeout_time_out_on_the_dot(loop: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 3)
        assert loop.time() == START_S + 3
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.Event().wait()
        assert loop.time() == START_S + 5
        async with asyncio.timeout(2):
            await asyncio.sleep(1)
        assert await asyncio.wait_for(asyncio.sleep(1, "in time"), 2) == "in time"

    loop.run_until_complete(main())
    assert loop.time() == START_S + 7


def test_queue_event_lock_condition_and_semaphore(loop: VirtualLoop) -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        event, condition, semaphore = asyncio.Event(), asyncio.Condition(), asyncio.Semaphore(2)
        seen: list[int] = []

        async def produce() -> None:
            await event.wait()
            for value in range(5):
                async with semaphore:
                    await queue.put(value)

        async def consume() -> None:
            while len(seen) < 5:
                await asyncio.sleep(1)
                seen.append(await queue.get())
            async with condition:
                condition.notify_all()

        tasks = [asyncio.create_task(produce()), asyncio.create_task(consume())]
        loop.call_later(1, event.set)
        async with condition:
            await condition.wait_for(lambda: len(seen) == 5)
        await asyncio.gather(*tasks)
        return seen

    assert loop.run_until_complete(main()) == [0, 1, 2, 3, 4]


def test_context_variables_follow_the_task(loop: VirtualLoop) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")

    async def child() -> str:
        await asyncio.sleep(1)
        return variable.get()

    async def main() -> tuple[str, str]:
        variable.set("first")
        first = asyncio.create_task(child())
        variable.set("second")
        second = asyncio.create_task(child())
        variable.set("third")
        return await first, await second

    assert loop.run_until_complete(main()) == ("first", "second")
    assert variable.get() == "none"


def test_an_async_generator_that_is_dropped_is_finished(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            seen.append("finished")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    assert seen == ["finished"]


def test_the_running_loop_is_this_one(loop: VirtualLoop) -> None:
    async def main() -> None:
        assert asyncio.get_running_loop() is loop
        assert loop.is_running()
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()

    loop.run_until_complete(main())
    assert not loop.is_running()
    assert loop.get_debug() is False
    with pytest.raises(Forbidden):
        loop.set_debug(True)


def test_a_run_can_be_followed_by_another(loop: VirtualLoop) -> None:
    seen: list[int] = []

    async def background() -> None:
        for value in range(4):
            seen.append(value)
            await asyncio.sleep(1)

    task = loop.create_task(background())
    loop.run_until_complete(asyncio.sleep(1.5))
    assert seen == [0, 1]
    loop.run_until_complete(task)
    assert seen == [0, 1, 2, 3]


def test_the_error_of_a_coroutine_comes_out(loop: VirtualLoop) -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop.run_until_complete(main())


def test_an_error_in_a_callback_fails_the_run_at_once(loop: VirtualLoop) -> None:
    loop.call_later(1, lambda: next(iter(())))
    with pytest.raises(Unhandled) as caught:
        loop.run_until_complete(asyncio.sleep(10))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert loop.time() == START_S + 1


def test_an_exception_handler_takes_what_would_fail_the_run(loop: VirtualLoop) -> None:
    seen: list[object] = []
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    assert loop.get_exception_handler() is not None
    loop.call_later(1, lambda: next(iter(())))
    loop.run_until_complete(asyncio.sleep(10))
    assert isinstance(seen[0], StopIteration)


def test_a_task_that_failed_unseen_is_reported(loop: VirtualLoop) -> None:
    async def bad() -> None:
        raise KeyError("unseen")

    loop.create_task(bad())
    loop.run_until_complete(asyncio.sleep(1))
    with pytest.raises(Unhandled, match="nobody looked"):
        loop.raise_unseen()


def test_done_tasks_are_forgotten(loop: VirtualLoop) -> None:
    async def main() -> None:
        for _ in range(1_000):
            await asyncio.create_task(asyncio.sleep(0))

    loop.run_until_complete(main())
    assert len(loop.root.tasks) < 100


def test_a_deadlock_names_who_waits(loop: VirtualLoop) -> None:
    async def waits_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"world/1 .*waits_forever at test_loop.py:\d+"):
        loop.run_until_complete(waits_forever())


def test_a_busy_loop_is_stopped(loop: VirtualLoop) -> None:
    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TooManyEvents, match=r"stuck at 1000\.0 s"):
        loop.run_until_complete(busy())


def test_a_run_without_end_is_stopped(loop: VirtualLoop) -> None:
    async def endless() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TooManyEvents):
        loop.run_until_complete(endless())
    assert loop.events > 200_000


@pytest.mark.parametrize(
    "name",
    [
        "call_soon_threadsafe",
        "run_in_executor",
        "add_reader",
        "add_writer",
        "remove_reader",
        "sock_recv",
        "create_connection",
        "create_server",
        "getaddrinfo",
        "add_signal_handler",
        "subprocess_exec",
        "set_default_executor",
    ],
)
def test_doors_to_the_real_world_are_shut(loop: VirtualLoop, name: str) -> None:
    with pytest.raises(Forbidden, match=f"{name} has no place"):
        getattr(loop, name)(None, None)


def test_to_thread_is_refused(loop: VirtualLoop) -> None:
    with pytest.raises(Forbidden, match="Workers"):
        loop.run_until_complete(asyncio.to_thread(print))


def test_stop_before_the_end_is_an_error(loop: VirtualLoop) -> None:
    loop.call_later(1, loop.stop)
    with pytest.raises(SimulationError, match="stopped before"):
        loop.run_until_complete(asyncio.sleep(10))


def test_closing_unwinds_what_is_suspended(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append("unwound")

    loop.create_task(main())
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()
    assert seen == ["unwound"]
    assert loop.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.create_task(asyncio.sleep(1))


def test_a_held_lane_stands_still_and_then_catches_up(loop: VirtualLoop) -> None:
    seen: list[float] = []

    async def ticks() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            seen.append(loop.time() - START_S)

    lane = loop.new_lane("node")
    loop.create_task(ticks(), context=lane.context.copy())
    loop.call_later(1.5, loop.hold, lane)
    loop.call_later(5, loop.release, lane)
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == [1, 5, 6, 7]


def test_an_ended_lane_never_runs_again_and_its_cleanup_has_no_future(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def child() -> None:
        await asyncio.sleep(3)
        seen.append("child")

    async def main() -> None:
        task = asyncio.create_task(child())
        try:
            await task
        finally:
            seen.append("unwound")
            asyncio.get_running_loop().call_soon(seen.append, "after death")
            task = asyncio.create_task(child())

    lane = loop.new_lane("node")
    loop.create_task(main(), context=lane.context.copy())
    loop.call_later(1, loop.end, lane)
    loop.run_until_complete(asyncio.sleep(10))
    assert seen == ["unwound"]
    loop.raise_unseen()
