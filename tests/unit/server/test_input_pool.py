"""The input pool: exact to the byte, first come first served, and never stuck."""

import asyncio
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from penstock.model.limits import Limits
from penstock.server.connections.input_pool import InputPool
from penstock.simulator.options import FaultOptions
from tests.apart import apart
from tests.unit.server.conftest import Drive, on_real_sockets, on_virtual_time
from tests.unit.server.shell import Peer, Place, plain, produce

HALF_BYTES = 2 * 80_000 - 4 * 1024
"""Bytes taken by 80,000 bytes of a larger frame: twice the data, less the first buffer."""


def taken(pool: InputPool, owner: object, size_bytes: int, *, is_first: bool = True) -> "asyncio.Task[None]":
    return asyncio.ensure_future(pool.take(owner, size_bytes, is_first=is_first))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_there_is_room_until_it_is_full() -> None:
    pool = InputPool(100)
    assert pool.try_take(60)
    assert not pool.try_take(41)
    assert pool.try_take(40)
    assert pool.used_bytes == 100
    pool.give(100)
    assert pool.used_bytes == 0


def test_giving_back_more_than_was_taken_is_a_mistake() -> None:
    pool = InputPool(100)
    assert pool.try_take(10)
    with pytest.raises(AssertionError):
        pool.give(11)


async def story_of_one_runner() -> None:
    pool = InputPool(100)
    assert pool.try_take(100)
    first, second = taken(pool, "a", 30), taken(pool, "b", 5)
    await turn()
    assert (first.done(), second.done(), pool.used_bytes) == (True, False, 130)
    assert taken(pool, "a", 20, is_first=False).done() is False
    await turn()
    assert pool.used_bytes == 150, "who went on beyond the pool goes on to the end of its frame"
    again = taken(pool, "a", 10)
    await turn()
    assert not again.done(), "but not with the next frame"
    pool.give(50)
    await turn()
    assert (second.done(), again.done(), pool.used_bytes) == (True, False, 105), "the next one runs"
    pool.give(100)
    await turn()
    assert again.done()
    assert pool.used_bytes == 15


def test_one_at_a_time_goes_on_without_room_the_oldest_first() -> None:
    asyncio.run(story_of_one_runner())


async def story_of_who_gives_up() -> None:
    pool = InputPool(100)
    assert pool.try_take(100)
    runner, waiting, last = taken(pool, "a", 1), taken(pool, "b", 50), taken(pool, "c", 2)
    await turn()
    assert runner.done()
    waiting.cancel()
    await turn()
    assert (pool.waiting, pool.used_bytes) == (1, 101)
    pool.give(1)
    last.cancel()  # granted, but cancelled before it learns of it
    await turn()
    assert (pool.waiting, pool.used_bytes) == (0, 100)
    pool.give(100)


def test_who_gives_up_while_waiting_holds_nothing() -> None:
    asyncio.run(story_of_who_gives_up())


@pytest.mark.parametrize("seed", range(20))
def test_random_takers_are_all_served_and_the_bound_holds(seed: int) -> None:
    random = Random(seed)
    pool = InputPool(1_000)
    frame_max = 700
    served: list[int] = []

    async def taker(number: int) -> None:
        held = 0
        try:
            for _ in range(5):
                held, size = 0, random.randrange(1, frame_max)
                while held < size:
                    step = min(size - held, random.randrange(1, 300))
                    if not pool.try_take(step):
                        await pool.take(number, step, is_first=held == 0)
                    held += step
                    assert pool.used_bytes <= pool.bytes_max + frame_max
                    await asyncio.sleep(random.random() / 1000)
                pool.give(held)
                held = 0
                served.append(number)
        except asyncio.CancelledError:
            pool.give(held)
            raise

    async def main() -> None:
        tasks = [asyncio.create_task(taker(number)) for number in range(12)]
        await asyncio.sleep(0.002)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not [task for task in tasks if not task.cancelled() and task.exception()]

    asyncio.run(asyncio.wait_for(main(), 30))
    assert pool.used_bytes == pool.waiting == 0
    assert sorted(served)[-50:] == [n for n in range(2, 12) for _ in range(5)]


def test_a_socket_is_not_read_while_there_is_no_room(drive: Drive) -> None:
    async def story(place: Place) -> None:
        pool = place.node.listeners.pool
        slow = [await place.connect() for _ in range(3)]
        whole = produce(1, bytes(200_000))
        for peer in slow:  # three halves fit into the pool, three whole frames do not
            await peer.send(whole[:80_000])
        await place.until(lambda: pool.used_bytes > 2.5 * HALF_BYTES)
        late, small = await place.connect(), await place.connect()
        await late.send(whole)
        await slow[0].send(whole[80_000:])
        assert await slow[0].answers(1) == [1]
        assert await late.answers(1) == [1]
        await small.send(plain(7))
        assert await small.answers(1) == [7], "small requests pass even so"
        for peer in slow[1:]:
            await peer.send(whole[80_000:])
            assert await peer.answers(1) == [1]
        assert pool.used_bytes == 0

    drive(story, input_pool_bytes_max=3 * HALF_BYTES + 10)


def test_frames_that_only_half_fit_together_arrive_one_after_the_other(drive: Drive) -> None:
    async def story(place: Place) -> None:
        pool = place.node.listeners.pool
        peers = [await place.connect() for _ in range(8)]

        async def ask(peer: Peer, number: int) -> None:
            for _ in range(5):
                await peer.send(produce(number, bytes(150_000)))
                assert await peer.answers(1) == [number]

        await asyncio.gather(*(ask(peer, number) for number, peer in enumerate(peers)))
        assert pool.used_bytes == 0

    drive(story, input_pool_bytes_max=200_000)


def test_a_frame_that_does_not_fit_into_the_pool_at_all_still_arrives(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(produce(1, bytes(3_000_000)))
        assert await peer.answers(1) == [1]

    drive(story, input_pool_bytes_max=1_000)


def test_half_a_frame_is_given_back_when_its_client_goes(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(produce(1, bytes(200_000))[:80_000])
        await place.until(lambda: place.node.listeners.pool.used_bytes == HALF_BYTES)
        peer.close()
        await place.until(lambda: not place.node.listeners.pool.used_bytes)

    drive(story)


def test_what_was_answered_is_not_kept_in_memory_while_its_client_is_idle(tmp_path: Path) -> None:
    assert apart(held_after_answers, tmp_path) < 1_000_000


def held_after_answers(directory: Path) -> int:
    """Returns the bytes in memory after four clients have received their responses."""
    held = []

    async def story(place: Place) -> None:
        peers = [await place.connect() for _ in range(4)]
        frame = produce(1, bytes(5_000_000))
        tracemalloc.start()
        try:
            for peer in peers:
                await peer.send(frame)
                assert await peer.answers(1) == [1]
            await place.settle()
            held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()

    on_real_sockets(directory, story)
    return held[0]


@pytest.mark.parametrize("seed", range(30))
def test_random_clients_on_a_bad_network_get_their_answers_in_order(seed: int) -> None:
    """Frames of all sizes, cut anywhere; some clients leave in between; a small pool and few slots."""
    random = Random(seed)

    async def story(place: Place) -> None:
        async def client(number: int) -> None:
            peer = await place.connect()
            kinds = [random.choice((produce, produce, plain)) for _ in range(20)]
            data = b"".join(
                kind(n) if kind is plain else kind(n, bytes(random.choice((0, 100, 5_000, 90_000, 200_000))))  # type: ignore[arg-type]
                for n, kind in enumerate(kinds)
            )
            cut = random.randrange(len(data)) if number % 4 == 3 else len(data)
            sending = asyncio.create_task(peer.send(data[:cut]))
            if cut == len(data):
                assert await peer.answers(20) == list(range(20))
                await sending
            else:
                await asyncio.sleep(random.random() / 100)
                peer.close()
                await asyncio.gather(sending, return_exceptions=True)

        await asyncio.gather(*(client(number) for number in range(12)))
        await place.until(lambda: not place.node.listeners.pool.used_bytes)

    limits = Limits(input_pool_bytes_max=300_000, requests_under_way_max=3)
    options = FaultOptions(fragment=0.5, window_bytes=random.choice((4_096, 65_536)))
    assert on_virtual_time(story, limits, seed=seed, options=options)


def test_a_lent_buffer_counts_and_what_is_kept_of_it_too() -> None:
    pool = InputPool(1_000, lent_bytes=400)
    first, second = pool.lend(), pool.lend()
    assert first is not None
    assert second is not None
    assert pool.lend() is None
    pool.take_back(first, kept_bytes=100)
    assert pool.used_bytes == 500
    assert pool.lend() is first, "nobody looks at it any more"
    view = memoryview(second)
    pool.take_back(second, kept_bytes=0)
    third = pool.lend()
    assert third is not second, "somebody still looks at it"
    assert view
