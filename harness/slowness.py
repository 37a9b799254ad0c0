"""Measures how much slower this machine is now than an idle one, so that CPU time limits hold on a busy machine.

Processes share the caches, the memory and the clock of a core, so even CPU time grows with other load.
"""

import gc
import time
from typing import Final

REFERENCE_S: Final = 0.012
"""CPU time of the same work on an idle machine."""
TRIES: Final = 5


def slowness() -> float:
    """The slowdown factor: the best of several tries, at least 1."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return max(1.0, min(_work_s() for _ in range(TRIES)) / REFERENCE_S)
    finally:
        if was_enabled:
            gc.enable()


def _work_s() -> float:
    began_s = time.thread_time()
    kept = {number: (number, str(number)) for number in range(30_000)}
    assert len(kept) == 30_000
    return time.thread_time() - began_s
