"""Base of waiting fetches: each is woken, reads in the next iteration of the loop, and ends once, possibly in an error.

One object per request, and no task. It reads in the next iteration so that it finds all records that arrive together.
It holds no slice while it waits, and reads everything anew at the end: limits and aborted transactions are those at the
time of the response, not of the request (R19).
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable

from penstock.server.connections.serving import Buffers, Later
from penstock.server.fetching.reading import Reading


class Poll(Later):
    """A fetch that waits for enough bytes or its deadline."""

    __slots__ = (
        "_answer",
        "_bytes_min",
        "_deadline_s",
        "_done",
        "_fail",
        "_is_over",
        "_is_woken",
        "_loop",
        "_reading",
        "_timer",
    )

    def __init__(self, reading: Reading, bytes_min: int, deadline_s: float, answer: Callable[[], Buffers]) -> None:
        """For a reading that has found too little; `answer` builds the response from its final results."""
        self._reading = reading
        self._bytes_min = bytes_min
        self._deadline_s = deadline_s
        self._answer = answer
        self._is_over = False
        self._is_woken = False
        reading.release()

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts waiting."""
        self._done = done
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(self._deadline_s, self._time_is_up)
        self._watch()

    def cancel(self) -> None:
        """Stops waiting: the client has disconnected, or the fetch has ended."""
        self._timer.cancel()
        self._is_over = True
        self._unwatch()

    @abstractmethod
    def _watch(self) -> None:
        """Arranges that every change calls `_look_soon`, including changes since the last read."""

    @abstractmethod
    def _unwatch(self) -> None:
        """Ends the effect of `_watch`."""

    def _look_soon(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self._is_over:
            return
        try:
            if self._has_enough():
                self._finish()
        except Exception as error:
            self._give_up(error)

    def _time_is_up(self) -> None:
        try:
            self._reading.look()
            self._finish()
        except Exception as error:
            self._give_up(error)

    def _has_enough(self) -> bool:
        """Whether the fetch can be answered; the reading then keeps its results, else it is emptied."""
        reading = self._reading
        reading.look()
        if reading.size_bytes >= self._bytes_min or reading.is_final:
            return True
        reading.release()
        return False

    def _finish(self) -> None:
        self.cancel()
        self._done(self._answer())

    def _give_up(self, error: Exception) -> None:
        self.cancel()
        self._reading.release()
        self._fail(error)
