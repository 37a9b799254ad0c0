"""Waiters for an offset are notified in order and once, and leave nothing behind when cancelled."""

import asyncio
from functools import partial

import pytest

from penstock.server.loop.waiters import UNWANTED_MAX, OffsetWaiters


def test_they_are_told_in_the_order_of_offsets_and_only_when_it_is_their_turn() -> None:
    waiters = OffsetWaiters()
    told: list[int] = []

    def tell(offset: int, _error: Exception | None) -> None:
        told.append(offset)

    for offset in (5, 3, 9, 3):
        waiters.add(offset, partial(tell, offset))
    waiters.reached(2)
    assert told == []
    waiters.reached(5)
    assert told == [3, 3, 5]
    assert len(waiters) == 1


def test_who_has_gone_is_not_told() -> None:
    waiters = OffsetWaiters()
    told: list[Exception | None] = []
    first, second = (waiters.add(offset, told.append) for offset in (1, 2))
    waiters.discard(first)
    waiters.discard(first)
    assert len(waiters) == 1
    waiters.reached(2)
    assert told == [None]
    waiters.discard(second)
    assert len(waiters) == len(waiters.heap) == 0


def test_those_who_gave_up_do_not_pile_up() -> None:
    """A partition without enough in-sync replicas commits nothing, and its producers retry for hours."""
    waiters = OffsetWaiters()
    stays = waiters.add(1_000_000, lambda _: None)
    for offset in range(10_000):
        waiters.discard(waiters.add(offset, lambda _: None))
    assert len(waiters) == 1
    assert len(waiters.heap) <= UNWANTED_MAX + 2
    assert stays in waiters.heap


def test_an_error_reaches_everybody_who_still_waits() -> None:
    waiters = OffsetWaiters()
    told: list[Exception | None] = []
    waiters.add(1, told.append)
    waiters.discard(waiters.add(2, told.append))
    waiters.fail(ValueError("broken"))
    assert [str(error) for error in told] == ["broken"]
    assert waiters.heap == []
    assert len(waiters) == 0


def test_a_future_is_one_way_to_be_told() -> None:
    async def story() -> None:
        waiters = OffsetWaiters()
        good, bad, gone = (waiters.wait_for(offset) for offset in (1, 2, 3))
        waiters.reached(1)
        await good
        gone.cancel()
        await asyncio.sleep(0)
        assert len(waiters) == 1
        waiters.fail(ValueError("broken"))
        with pytest.raises(ValueError, match="broken"):
            await bad

    asyncio.run(story())
