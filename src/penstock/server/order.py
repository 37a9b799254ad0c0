"""The order of answers on one connection: requests may overlap, their answers leave in the order of the requests.

Each request that is under way has a place. Whoever finishes the one in front sends its answer, together with those that
are ready behind it; so there is one sender at a time. An empty order means that nobody is sending.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutine
from typing import TypeAlias

from penstock.model.ports import Buffer, FileSlice
from penstock.server.serving import Answer, Buffers, Later
from penstock.server.timing import Timing

Send: TypeAlias = Callable[[Sequence[Buffer | FileSlice]], Awaitable[None]]

NOTHING: Buffers = ()


class Place:
    """One request that is under way."""

    __slots__ = ("answer", "began_s", "cost_bytes", "give", "later", "task", "timing", "waiting")

    def __init__(self, cost_bytes: int, timing: Timing, began_s: float, give: Callable[[int], None]) -> None:
        self.cost_bytes = cost_bytes
        self.give = give
        """Takes back what it cost."""
        self.timing = timing
        """Where it is noted how long the answer took."""
        self.began_s = began_s
        self.answer: Buffers | None = None
        self.task: asyncio.Task[None] | None = None
        self.waiting: Awaitable[Buffers] | None = None
        """What the task is going to wait for, until it runs."""
        self.later: Later | None = None
        """What gives the answer without a task."""


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
        """Called when everything has been answered."""

    def __len__(self) -> int:
        return len(self.places)

    def add(self, answer: Answer, cost_bytes: int, timing: Timing, began_s: float, give: Callable[[int], None]) -> None:
        """Takes the next place, for an answer that is here or still to come."""
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
        """Waits until that few are under way."""
        while len(self.places) >= count:
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    def drop(self) -> None:
        """The connection is over: cancels what is under way and lets go of answers that nobody will get."""
        places, self.places = self.places, deque()
        for place in places:
            if place.later is not None:
                place.later.cancel()
            if place.task is not None:
                place.task.cancel()
                if iscoroutine(place.waiting):  # the task never ran, so nobody else ends it
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
        """Runs after everybody was told who waited for the same thing, so that their answers leave together."""
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
    """Lets go of file slices that will not be sent."""
    for buffer in answer:
        if isinstance(buffer, FileSlice):
            buffer.release()
