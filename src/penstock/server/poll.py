"""What all waiting fetches do: being woken, looking in the loop's next round, and ending once, in time or by an error.

One object per request, and no task. It looks in the next round so that it finds what came in together. It holds no
slice while it waits, and reads everything anew at the end: limits and aborted transactions are those of the answer, not
those of the request (R19).
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable

from penstock.server.reading import Reading
from penstock.server.serving import Buffers, Later


class Poll(Later):
    """A fetch that waits until there are enough bytes for it, or its time is up."""

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
        """For a reading that has looked and found too little; `answer` is made of what it finds at the end."""
        self._reading = reading
        self._bytes_min = bytes_min
        self._deadline_s = deadline_s
        self._answer = answer
        self._is_over = False
        self._is_woken = False
        reading.release()

    def begin(self, done: Callable[[Buffers], None], fail: Callable[[Exception], None]) -> None:
        """Starts to wait."""
        self._done = done
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_at(self._deadline_s, self._time_is_up)
        self._watch()

    def cancel(self) -> None:
        """The client is gone."""
        self._timer.cancel()
        self._is_over = True
        self._unwatch()

    @abstractmethod
    def _watch(self) -> None:
        """From now on whatever changes leads to `_look_soon`, and so does what has changed since the look."""

    @abstractmethod
    def _unwatch(self) -> None:
        """It is over: nothing that changes leads here any more."""

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
        """Leaves the reading with what it found if so, and empty if not."""
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
