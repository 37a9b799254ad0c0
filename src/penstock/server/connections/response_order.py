"""The order of responses on one connection: requests may overlap, but responses leave in the order of the requests.

Each in-flight request has a place. When the first place is finished, its task sends the response, together with the
finished responses behind it; so there is one sender at a time. In an empty order, no response is being sent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutine
from typing import TypeAlias

from penstock.model.ports import Buffer, FileSlice
from penstock.server.connections.serving import Answer, Buffers, Later
from penstock.server.loop.timing import Timing

Send: TypeAlias = Callable[[Sequence[Buffer | FileSlice]], Awaitable[None]]

NOTHING: Buffers = ()


class Place:
    """One in-flight request."""

    __slots__ = ("answer", "began_s", "cost_bytes", "give", "later", "task", "timing", "waiting")

    def __init__(self, cost_bytes: int, timing: Timing, began_s: float, give: Callable[[int], None]) -> None:
        self.cost_bytes = cost_bytes
        self.give = give
        """Gives `cost_bytes` back to the pool."""
        self.timing = timing
        """The histogram of response times to record in."""
        self.began_s = began_s
        self.answer: Buffers | None = None
        self.task: asyncio.Task[None] | None = None
        self.waiting: Awaitable[Buffers] | None = None
        """The awaitable of the task, until the task runs."""
        self.later: Later | None = None
        """Delivers the response without a task."""


class Order:
    """The places of one connection, oldest first."""

    __slots__ = ("_changed", "_on_error", "_send", "_time", "on_empty", "places")

    def __init__(self, send: Send, on_error: Callable[[Exception], None], time: Callable[[], float]) -> None:
        self._time = time
        self._send = send
        self._on_error = on_error
        self.places: deque[Place] = deque()
        self._changed: asyncio.Future[None] | None = None
        self.on_empty: Callable[[], None] | None = None
        """Called when all requests have been answered."""

    def __len__(self) -> int:
        return len(self.places)

    def add(self, answer: Answer, cost_bytes: int, timing: Timing, began_s: float, give: Callable[[int], None]) -> None:
        """Appends a place for a response that is ready or pending."""
        place = Place(cost_bytes, timing, began_s, give)
        self.places.append(place)
        if answer is None:
            place.answer = NOTHING
            timing.note(self._time() - began_s)
        elif isinstance(answer, Later):
            place.later = answer
            answer.begin(partial(self._done, place), self._on_error)
        elif isinstance(answer, Awaitable):
            place.waiting = answer
            place.task = asyncio.get_running_loop().create_task(self._finish(place))
        else:
            place.answer = answer
            timing.note(self._time() - began_s)

    async def until_fewer_than(self, count: int) -> None:
        """Waits until fewer than `count` requests are in flight."""
        while len(self.places) >= count:
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    def drop(self) -> None:
        """Cancels in-flight requests and releases unsent responses: the connection has ended."""
        places, self.places = self.places, deque()
        for place in places:
            if place.later is not None:
                place.later.cancel()
            if place.task is not None:
                place.task.cancel()
                if iscoroutine(place.waiting):  # the task never ran, so nothing else closes it
                    place.waiting.close()
            release(place.answer or NOTHING)
            if place.cost_bytes:
                place.give(place.cost_bytes)

    def _done(self, place: Place, answer: Buffers) -> None:
        place.answer, place.later = answer, None
        place.timing.note(self._time() - place.began_s)
        if self.places and self.places[0] is place:
            place.task = asyncio.get_running_loop().create_task(self._send_front())

    async def _send_front(self) -> None:
        """Runs after all waiters for the same event were notified, so that their responses leave together."""
        try:
            await self._send_ready()
        except Exception as error:
            self._on_error(error)

    async def _finish(self, place: Place) -> None:
        waiting, place.waiting = place.waiting, None
        assert waiting is not None
        try:
            place.answer = await waiting
            place.timing.note(self._time() - place.began_s)
            if self.places and self.places[0] is place:
                await self._send_ready()
        except Exception as error:
            self._on_error(error)

    async def _send_ready(self) -> None:
        places = self.places
        while places and places[0].answer is not None:
            buffers: list[Buffer | FileSlice] = []
            count = 0
            for place in places:
                if place.answer is None:
                    break
                buffers += place.answer
                count += 1
            if buffers:
                await self._send(buffers)
            if places is not self.places:
                return  # dropped meanwhile
            for _ in range(count):
                place = places.popleft()
                if place.cost_bytes:
                    place.give(place.cost_bytes)
            if self._changed is not None and not self._changed.done():
                self._changed.set_result(None)
        if not places and self.on_empty is not None:
            self.on_empty()


def release(answer: Buffers) -> None:
    """Releases file slices that will not be sent."""
    for buffer in answer:
        if isinstance(buffer, FileSlice):
            buffer.release()
