"""Garbage collection in a process that keeps much for long: what is kept is not looked at again and again.

The interpreter looks at everything when a quarter as much as it keeps is new, also where the new only took the place of
the old; for a hundred thousand offsets of groups nobody is served for a tenth of a second then. Here whatever a whole
collection has left is set aside, and the next one looks only at what is newer. Cycles among what was set aside are
found when there is half as much again as when everything was last looked at.
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

GROWTH: Final = 1.5
FEW_BLOCKS: Final = 200_000
"""Of memory, of at most 512 bytes each; where there is less, everything is looked at in no time."""
LOOK_S: Final = 60.0
EVERYTHING: Final = 2
"""The generation that is all of them."""


def uncollected(work: Callable[[], T]) -> T:
    """What work returns that makes thousands of objects: they are set aside at once, instead of looked through.

    Threads share the collector: while a worker made a hundred thousand objects it stopped everything several times, for
    ten milliseconds each.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class PatientCollector:
    """From `start` to `stop`, for the whole process. Interpreters that collect bit by bit are left to it."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, blocks: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._now_s = now_s
        self._blocks = blocks
        self._kept_blocks = 0
        self._looks_at_s = 0.0
        self._takes_all = False
        self.whole = 0
        """How often everything was looked at."""

    def start(self) -> None:
        """What is there now stays."""
        gc.collect()
        gc.freeze()
        self._looked_at_all()
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """As if nothing had been."""
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    def _looked_at_all(self) -> None:
        self.whole += 1
        self._takes_all = False
        self._kept_blocks = max(self._blocks(), FEW_BLOCKS)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != EVERYTHING:
            return
        gc.freeze()
        if self._takes_all:
            self._looked_at_all()
        elif (now_s := self._now_s()) >= self._looks_at_s:
            self._looks_at_s = now_s + LOOK_S
            if self._blocks() > GROWTH * self._kept_blocks:
                self._takes_all = True
                gc.unfreeze()
