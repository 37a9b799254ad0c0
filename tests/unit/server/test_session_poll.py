"""A follower's waiting fetch: wake-ups, and exactly one end. The data are made up."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.server.fetching.session_poll import SessionPoll
from tests.unit.server.handlers.bare_node import running

MIN_BYTES = 10
WAIT_S = 5.0


class Found:
    """A fake reading that holds its records until they are released."""

    def __init__(self) -> None:
        self.there = 0
        self.size_bytes = 0
        self.is_final = False
        self.is_broken = False

    def look(self) -> None:
        if self.is_broken:
            raise ValueError("a mistake of ours")
        self.size_bytes = self.there

    def release(self) -> None:
        self.size_bytes = 0


class Fetch:
    """A fetch in a session, and its outcome."""

    def __init__(self, found: Found, session: Any) -> None:
        self.ends: list[object] = []
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        reading: Any = found
        self.poll = SessionPoll(reading, session, MIN_BYTES, deadline_s, lambda: [str(found.size_bytes).encode()])

    def begin(self) -> None:
        self.poll.begin(self.ends.append, self.ends.append)


def told(story: Callable[[Found, Any], Coroutine[Any, Any, None]]) -> None:
    """Runs a story on virtual time."""
    running(lambda _stand: story(Found(), SimpleNamespace(changes=0, on_change=None)))


def change(session: Any) -> None:
    session.changes += 1
    if session.on_change is not None:
        session.on_change()


def test_it_ends_when_there_is_enough_and_holds_nothing_before() -> None:
    async def story(found: Found, session: Any) -> None:
        fetch = Fetch(found, session)
        fetch.begin()
        found.there = MIN_BYTES - 1
        change(session)
        await asyncio.sleep(0)
        assert (fetch.ends, found.size_bytes) == ([], 0)
        found.there = MIN_BYTES
        change(session)
        change(session)
        await asyncio.sleep(0)
        assert fetch.ends == [[b"10"]]
        assert session.on_change is None
        await asyncio.sleep(2 * WAIT_S)
        assert len(fetch.ends) == 1, "its time was up, but it was over"

    told(story)


def test_what_comes_before_the_wait_begins_is_not_missed() -> None:
    async def story(found: Found, session: Any) -> None:
        fetch = Fetch(found, session)
        found.there = MIN_BYTES
        change(session)
        fetch.begin()
        await asyncio.sleep(0)
        assert fetch.ends == [[b"10"]]

    told(story)


def test_when_the_time_is_up_it_gives_what_there_is() -> None:
    async def story(found: Found, session: Any) -> None:
        fetch = Fetch(found, session)
        fetch.begin()
        found.there = 3
        await asyncio.sleep(2 * WAIT_S)
        assert fetch.ends == [[b"3"]]

    told(story)


def test_who_goes_in_the_round_in_which_it_is_woken_is_told_nothing() -> None:
    async def story(found: Found, session: Any) -> None:
        fetch = Fetch(found, session)
        fetch.begin()
        found.there = MIN_BYTES
        change(session)
        fetch.poll.cancel()
        await asyncio.sleep(2 * WAIT_S)
        assert (fetch.ends, found.size_bytes) == ([], 0)

    told(story)


def test_one_that_is_given_up_leaves_the_next_one_of_its_session_alone() -> None:
    async def story(found: Found, session: Any) -> None:
        first, second = Fetch(found, session), Fetch(found, session)
        first.begin()
        second.begin()
        first.poll.cancel()
        found.there = MIN_BYTES
        change(session)
        await asyncio.sleep(0)
        assert (first.ends, second.ends) == ([], [[b"10"]])

    told(story)


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_mistake_of_ours_ends_it_and_is_told(is_woken: bool) -> None:
    async def story(found: Found, session: Any) -> None:
        fetch = Fetch(found, session)
        fetch.begin()
        found.is_broken = True
        if is_woken:
            change(session)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(2 * WAIT_S)
        (error,) = fetch.ends
        assert isinstance(error, ValueError)
        assert session.on_change is None

    told(story)
