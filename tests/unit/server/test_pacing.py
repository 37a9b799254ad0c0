"""Long work runs one piece at a time, and pauses while requests are served."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.server.loop.pacing import ALLOWANCE, ALLOWANCE_PER_S, REST_S, Pacer, begin_pacing, pacer
from penstock.simulator.loop import new_loop


def run(story: Callable[[], Awaitable[None]]) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


def test_one_piece_runs_in_a_round_of_the_loop() -> None:
    async def story() -> None:
        begin_pacing()
        pieces: list[tuple[int, int]] = []
        rounds = 0

        async def work(number: int) -> None:
            for _ in range(5):
                await pacer().turn()
                pieces.append((number, rounds))

        workers = [asyncio.create_task(work(number)) for number in range(3)]
        while not all(worker.done() for worker in workers):
            rounds += 1
            await asyncio.sleep(0)
        assert len(pieces) == 15
        assert len({when for _, when in pieces}) == 15, "two pieces ran without a turn for others between them"
        assert [number for number, _ in pieces] == [0, *([0, 1, 2] * 4), 1, 2], "first come, first served"

    run(story)


def test_long_work_without_an_end_rests_while_requests_come() -> None:
    async def story() -> None:
        begin_pacing()
        time = asyncio.get_running_loop().time
        began_s = time()
        for _ in range(2 * ALLOWANCE):
            await pacer().turn()
        assert time() == began_s, "nobody else asks for anything"
        for _ in range(ALLOWANCE):
            pacer().requests += 1
            await pacer().turn()
        assert time() == began_s, "a large request goes on at once"
        for _ in range(100):
            pacer().requests += 1
            await pacer().turn()
        assert 30 * REST_S < time() - began_s <= 100 * REST_S
        await asyncio.sleep(ALLOWANCE / ALLOWANCE_PER_S)
        began_s = time()
        for _ in range(ALLOWANCE // 2):
            pacer().requests += 1
            await pacer().turn()
        assert time() == began_s, "the allowance has grown again"

    run(story)


def test_whoever_gives_up_lets_the_next_one_go() -> None:
    async def story() -> None:
        turns = Pacer(asyncio.get_running_loop())
        await turns.turn()
        waiting = [asyncio.create_task(turns.turn()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        for _ in range(4):
            await asyncio.sleep(0)
        waiting[1].cancel()  # it may have got its turn already
        async with asyncio.timeout(1):
            await waiting[2]

    run(story)


def test_each_node_has_a_pacer_of_its_own() -> None:
    """A node killed in the middle of a piece delays no other node."""

    async def node() -> Pacer:
        begin_pacing()

        async def task() -> Pacer:
            return pacer()

        assert await asyncio.create_task(task()) is pacer()
        return pacer()

    async def story() -> None:
        assert await asyncio.create_task(node()) is not await asyncio.create_task(node())
        assert pacer() is pacer()

    run(story)
