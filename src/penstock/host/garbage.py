"""Garbage collection for a process with many long-lived objects, which are not scanned again and again.

The interpreter scans all objects when the new ones number a quarter of the long-lived ones, even if they only replaced
older ones; with a hundred thousand group offsets, all requests then wait for a tenth of a second. Here the survivors of
a full collection are frozen, and the next one scans only newer objects. Cycles among frozen objects are found by a scan
of everything once memory has grown by half since the last such scan.
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

GROWTH: Final = 1.5
FEW_BLOCKS: Final = 200_000
"""Memory blocks of at most 512 bytes each; with fewer, a scan of everything is fast."""
LOOK_S: Final = 60.0
EVERYTHING: Final = 2
"""The oldest generation, whose collection includes all others."""


def uncollected(work: Callable[[], T]) -> T:
    """Runs work that creates thousands of objects with the collector off, then freezes them unscanned.

    Threads share the collector: while a worker created a hundred thousand objects, it stopped all threads several
    times, for ten milliseconds each.
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
    """See the module. Affects the whole process from `start` to `stop`; incremental collectors are left alone."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, blocks: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._now_s = now_s
        self._blocks = blocks
        self._kept_blocks = 0
        self._looks_at_s = 0.0
        self._takes_all = False
        self.whole = 0
        """Number of scans of everything."""

    def start(self) -> None:
        """Collects, and freezes the objects that exist now."""
        gc.collect()
        gc.freeze()
        self._looked_at_all()
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Unfreezes all objects and restores the interpreter's own collection."""
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
