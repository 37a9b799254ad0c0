"""Callbacks per second on one core of the virtual-time loop: asyncio alone, and the toy service with all its faults."""

import asyncio
from time import process_time

from harness.toy_service import run_seed
from penstock.simulator.loop import new_loop

PAIRS = 50
ROUNDS = 1_000
SEEDS = 100


async def ping_pong() -> None:
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def echo() -> None:
        while True:
            value = await there.get()
            await asyncio.sleep(0.001)
            back.put_nowait(value)

    task = asyncio.create_task(echo())
    for value in range(ROUNDS):
        there.put_nowait(value)
        async with asyncio.timeout(1):
            await back.get()
    task.cancel()


async def all_pairs() -> None:
    await asyncio.gather(*(ping_pong() for _ in range(PAIRS)))


def main() -> None:
    best = 0.0
    for _ in range(5):
        loop = new_loop()
        began_s = process_time()
        loop.run_until_complete(all_pairs())
        best = max(best, loop.events / (process_time() - began_s))
        loop.close()
    print(f"queues, sleeps and time-outs                   {best:>10,.0f} callbacks/s")
    began_s = process_time()
    events = sum(run_seed(seed).events for seed in range(SEEDS))
    print(f"toy service, worlds built and closed included  {events / (process_time() - began_s):>10,.0f} callbacks/s")


if __name__ == "__main__":
    main()
