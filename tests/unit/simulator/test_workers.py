"""Work runs later, in the order of free threads, with or without a waiter."""

import asyncio

import pytest

from penstock.simulator.loop import START_S, VirtualLoop
from penstock.simulator.randomness import Streams
from penstock.simulator.workers import SimulatedWorkers


def make(loop: VirtualLoop, **settings: float) -> SimulatedWorkers:
    return SimulatedWorkers(loop, Streams(1).stream("workers"), **settings)  # type: ignore[arg-type]


def test_work_takes_virtual_time(loop: VirtualLoop) -> None:
    async def main() -> int:
        return await make(loop).run(lambda: 42)

    assert loop.run_until_complete(main()) == 42
    assert loop.time() > START_S


def test_the_error_of_the_work_comes_out(loop: VirtualLoop) -> None:
    async def main() -> None:
        await make(loop).run(lambda: int("no number"))

    with pytest.raises(ValueError, match="no number"):
        loop.run_until_complete(main())


def test_one_thread_does_one_thing_at_a_time(loop: VirtualLoop) -> None:
    seen: list[int] = []

    async def main() -> None:
        workers = make(loop, threads=1)
        await asyncio.gather(*(workers.run(lambda value=value: seen.append(value)) for value in range(10)))  # type: ignore[misc]

    loop.run_until_complete(main())
    assert seen == list(range(10))


def test_work_nobody_waits_for_is_done_all_the_same(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        work = make(loop, delay_s_mean=1.0).run(lambda: seen.append("done"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work, 0.001)
        await asyncio.sleep(100)

    loop.run_until_complete(main())
    assert seen == ["done"]
