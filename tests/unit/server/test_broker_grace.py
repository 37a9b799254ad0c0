"""Metadata responses about a broker that was lost a moment ago."""

import asyncio
from dataclasses import replace
from typing import Any, cast

from penstock.metadata.image import Broker, Image
from penstock.server.membership.broker_grace import DOUBT_MS, LISTED_MS, BrokerGrace
from tests.unit.server.handlers.cluster import on_virtual_time

ME, OTHER = 1, 2


class Line:
    """A connection."""

    is_closed = False


class Scene:
    """Two brokers of which one is lost, and a controller that fences it on request."""

    def __init__(self) -> None:
        self.image = Image(brokers={each: Broker(each, 0, bytes(16), ()) for each in (ME, OTHER)})
        self.broker_grace = BrokerGrace(cast("Any", self))
        self._changed = asyncio.Event()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def fence(self, *, is_fenced: bool = True) -> None:
        brokers = {**self.image.brokers, OTHER: replace(self.image.brokers[OTHER], is_fenced=is_fenced)}
        self.image = replace(self.image, brokers=brokers)
        self._changed.set()

    async def until(self, is_so: Any) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    async def waited_ms(self) -> int:
        """Returns how long a Metadata request waits now."""
        began_ms = self.monotonic_ms()
        await self.broker_grace.settled(cast("Any", self))
        return self.monotonic_ms() - began_ms

    @property
    def listed(self) -> list[int]:
        brokers = self.image.brokers.values()
        return [each.broker_id for each in brokers if self.broker_grace.is_listed(each, self.image)]


def test_metadata_waits_until_who_was_lost_is_fenced() -> None:
    async def story() -> None:
        scene = Scene()
        assert await scene.waited_ms() == 0
        scene.broker_grace.lost(OTHER)
        asyncio.get_running_loop().call_later(0.02, scene.fence)
        assert await scene.waited_ms() == 20
        assert await scene.waited_ms() == 0

    on_virtual_time(story)


def test_metadata_does_not_wait_for_long_nor_again() -> None:
    async def story() -> None:
        scene = Scene()
        scene.broker_grace.lost(OTHER)
        assert DOUBT_MS <= await scene.waited_ms() <= DOUBT_MS + 1
        scene.broker_grace.lost(OTHER)
        assert await scene.waited_ms() == 0, "it is still the same loss"
        scene.broker_grace.answered(OTHER, Line())
        scene.broker_grace.lost(OTHER)
        assert await scene.waited_ms() >= DOUBT_MS

    on_virtual_time(story)


def test_a_connection_that_ends_between_two_fetches_is_noticed() -> None:
    async def story() -> None:
        scene, line = Scene(), Line()
        scene.broker_grace.answered(OTHER, line)
        assert await scene.waited_ms() == 0
        line.is_closed = True
        assert await scene.waited_ms() >= DOUBT_MS
        assert await scene.waited_ms() == 0

    on_virtual_time(story)


def test_who_has_answered_since_or_is_unknown_is_not_waited_for() -> None:
    async def story() -> None:
        scene = Scene()
        scene.broker_grace.lost(OTHER)
        scene.broker_grace.answered(OTHER, Line())
        scene.broker_grace.lost(7)
        assert await scene.waited_ms() == 0

    on_virtual_time(story)


def test_who_was_fenced_is_listed_a_moment_longer() -> None:
    async def story() -> None:
        scene = Scene()
        assert scene.listed == [ME, OTHER]
        scene.fence()
        assert scene.listed == [ME, OTHER]
        await asyncio.sleep(LISTED_MS / 1000)
        assert scene.listed == [ME]
        scene.fence(is_fenced=False)
        assert scene.listed == [ME, OTHER]

    on_virtual_time(story)


def test_who_was_fenced_before_is_not_listed() -> None:
    async def story() -> None:
        scene = Scene()
        scene.fence()
        assert scene.listed == [ME]

    on_virtual_time(story)
