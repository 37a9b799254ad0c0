"""Byte budget: first come, first served; bytes are returned on every path."""

import asyncio

import pytest

from penstock.client.producer.budget import ByteBudget


def test_who_finds_room_does_not_wait() -> None:
    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(4, 1)
        await budget.take(6, 1)
        assert budget.held_bytes == 10

    asyncio.run(story())


def test_what_is_larger_than_everything_goes_alone() -> None:
    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(11, 1)
        with pytest.raises(TimeoutError):
            await budget.take(1, 1)
        budget.give_back(11)
        await budget.take(1, 1)

    asyncio.run(story())


def test_nobody_overtakes() -> None:
    order: list[str] = []

    async def take(budget: ByteBudget, name: str, size: int) -> None:
        await budget.take(size, 10_000)
        order.append(name)

    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(8, 1)
        waiting = [asyncio.create_task(take(budget, name, size)) for name, size in (("large", 9), ("small", 1))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == []
        budget.give_back(8)
        await asyncio.gather(*waiting)
        assert order == ["large", "small"]
        assert budget.held_bytes == 10

    asyncio.run(story())


def test_who_gives_up_makes_room_for_the_next() -> None:
    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(8, 1)
        large = asyncio.create_task(budget.take(9, 10_000))
        small = asyncio.create_task(budget.take(2, 10_000))
        await asyncio.sleep(0)
        large.cancel()
        await small
        assert budget.held_bytes == 10

    asyncio.run(story())


def test_who_is_cancelled_with_the_bytes_in_hand_gives_them_back() -> None:
    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(8, 1)
        late = asyncio.create_task(budget.take(5, 10_000))
        await asyncio.sleep(0)
        budget.give_back(8)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert budget.held_bytes == 0

    asyncio.run(story())


def test_all_who_wait_can_be_sent_away() -> None:
    async def story() -> None:
        budget = ByteBudget(10)
        await budget.take(10, 1)
        waiting = asyncio.create_task(budget.take(1, 10_000))
        await asyncio.sleep(0)
        budget.refuse_all(KeyError("closed"))
        with pytest.raises(KeyError):
            await waiting
        assert budget.held_bytes == 10

    asyncio.run(story())
