"""Trying again: longer pauses each time, some chance in them so that clients do not march in step, and a deadline."""

import asyncio

from penstock.client.errors import ClientError
from penstock.model.ports import Clock, Entropy

PAUSE_MS_FIRST = 50
PAUSE_MS_MAX = 1000
_JITTER_PERCENT = 20


def pause_ms(attempt: int, entropy: Entropy, first_ms: int = PAUSE_MS_FIRST, most_ms: int = PAUSE_MS_MAX) -> int:
    """How long to wait after the n-th failure, counted from 1: doubling, a fifth more or less."""
    full_ms = min(most_ms, first_ms << min(attempt - 1, 16))
    percent = 100 - _JITTER_PERCENT + entropy.below(2 * _JITTER_PERCENT + 1)
    return max(1, full_ms * percent // 100)


class Retry:
    """The attempts of one call."""

    __slots__ = ("_attempts", "_clock", "_deadline_ms", "_entropy", "_started_ms")

    def __init__(self, clock: Clock, entropy: Entropy, timeout_ms: int) -> None:
        self._clock = clock
        self._entropy = entropy
        self._attempts = 0
        self._started_ms = clock.monotonic_ms()
        self._deadline_ms = self._started_ms + timeout_ms

    @property
    def left_ms(self) -> int:
        """Until the deadline; at least 1, so that it can be a time-out."""
        return max(1, self._deadline_ms - self._clock.monotonic_ms())

    @property
    def spent_ms(self) -> int:
        """Since the first attempt."""
        return self._clock.monotonic_ms() - self._started_ms

    async def after(self, error: ClientError) -> None:
        """Pauses before the next attempt, or raises the error if there should be none."""
        self._attempts += 1
        if not error.is_retriable:
            raise error
        wait_ms = pause_ms(self._attempts, self._entropy)
        now_ms = self._clock.monotonic_ms()
        if now_ms + wait_ms >= self._deadline_ms:
            if self._attempts > 1:
                error.add_note(f"gave up after {self._attempts} attempts in {now_ms - self._started_ms} ms")
            raise error
        await asyncio.sleep(wait_ms / 1000)
