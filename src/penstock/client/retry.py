"""Retries with exponential back-off, jitter so that clients do not retry in lockstep, and a deadline."""

import asyncio
from collections.abc import Callable

from penstock.client.errors import ClientError
from penstock.model.ports import Clock, Entropy

PAUSE_MS_FIRST = 50
PAUSE_MS_MAX = 1000
_JITTER_PERCENT = 20


def pause_ms(attempt: int, entropy: Entropy, first_ms: int = PAUSE_MS_FIRST, most_ms: int = PAUSE_MS_MAX) -> int:
    """The pause after the n-th failure, counted from 1: doubling, with 20 percent of jitter either way."""
    full_ms = min(most_ms, first_ms << min(attempt - 1, 16))
    percent = 100 - _JITTER_PERCENT + entropy.below(2 * _JITTER_PERCENT + 1)
    return max(1, full_ms * percent // 100)


class Retry:
    """Retry state of one call."""

    __slots__ = ("_attempts", "_clock", "_deadline_ms", "_entropy", "_first", "_started_ms")

    def __init__(self, clock: Clock, entropy: Entropy, timeout_ms: int) -> None:
        self._clock = clock
        self._entropy = entropy
        self._attempts = 0
        self._started_ms = clock.monotonic_ms()
        self._deadline_ms = self._started_ms + timeout_ms
        self._first: tuple[int, Callable[[], bool]] | None = None

    @property
    def left_ms(self) -> int:
        """Time until the deadline; at least 1, so that it can serve as a timeout."""
        return max(1, self._deadline_ms - self._clock.monotonic_ms())

    @property
    def spent_ms(self) -> int:
        """Time since the first attempt."""
        return self._clock.monotonic_ms() - self._started_ms

    def limit_first(self, limit_ms: int, is_over: Callable[[], bool]) -> None:
        """Sets an earlier deadline, which applies until the first contact `is_over`."""
        self._first = (self._started_ms + limit_ms, is_over)

    async def after(self, error: ClientError) -> None:
        """Pauses before the next attempt, or raises the error if it is not retriable or the deadline is near."""
        self._attempts += 1
        if not error.is_retriable:
            raise error
        wait_ms = pause_ms(self._attempts, self._entropy)
        now_ms = self._clock.monotonic_ms()
        ends_ms = self._deadline_ms
        if self._first is not None and not self._first[1]():
            ends_ms = min(ends_ms, self._first[0])
        if now_ms + wait_ms >= ends_ms:
            if self._attempts > 1:
                error.add_note(f"gave up after {self._attempts} attempts in {now_ms - self._started_ms} ms")
            raise error
        await asyncio.sleep(wait_ms / 1000)
