"""What one case may cost: 50 ms and 64 MiB, whatever its bytes are.

Time is the wall clock first; a case that seems too slow, or slower than any before, is run again and judged by the
least processor time, because a busy machine is not the case's fault; nor is one that stands still for a moment, so
before a case is called too slow it is run after pauses, too. Memory is the peak of the resident set during the
case, native allocations included: the kernel forgets the peak before every case (`clear_refs`), which getrusage cannot.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress

MIB = 1024 * 1024
CASE_MS_MAX = 50.0
CASE_BYTES_MAX = 64 * MIB
INPUT_BYTES_MAX = 4096
# Faster than this is not worth a second look.
_NOTABLE_MS = 2.0
_REPEATS = 3
_PAUSES_S = (0.1, 0.5, 2.0)

Case = Callable[[bytes], None]


class TooSlow(Exception):
    """A case took longer than CASE_MS_MAX."""


class TooLarge(Exception):
    """A case needed more memory than CASE_BYTES_MAX."""


class Target:
    """A case with its bounds, and what it has cost so far. Whatever it raises is a finding."""

    def __init__(self, name: str, case: Case) -> None:
        self.name = name
        self.executions = 0
        self.slowest_ms = 0.0
        self.growth_max_bytes = 0
        self._case = case

    def __call__(self, data: bytes) -> None:
        """Runs the case once, or a few times when it was slow."""
        self.executions += 1
        _MEMORY.growth_bytes()
        start = time.perf_counter()
        self._case(data)
        took_ms = (time.perf_counter() - start) * 1000
        if took_ms > _NOTABLE_MS and took_ms > self.slowest_ms:
            took_ms = min(took_ms, *(self._processor_ms(data) for _ in range(_REPEATS)))
            for pause_s in _PAUSES_S if took_ms > CASE_MS_MAX else ():
                time.sleep(pause_s)
                took_ms = min(took_ms, self._processor_ms(data))
            self.slowest_ms = max(self.slowest_ms, took_ms)
            if took_ms > CASE_MS_MAX:
                raise TooSlow(f"{took_ms:.0f} ms where {CASE_MS_MAX:.0f} are allowed")
        grew_bytes = _MEMORY.growth_bytes()
        if grew_bytes > self.growth_max_bytes:
            self.growth_max_bytes = grew_bytes
            if grew_bytes > CASE_BYTES_MAX:
                raise TooLarge(f"memory grew by {grew_bytes // MIB} MiB where {CASE_BYTES_MAX // MIB} are allowed")

    def start_over(self) -> None:
        """Forgets what was measured, as after a warm-up."""
        self.executions, self.slowest_ms, self.growth_max_bytes = 0, 0.0, 0

    def _processor_ms(self, data: bytes) -> float:
        start = time.process_time()
        self._case(data)
        return (time.process_time() - start) * 1000


class _Memory:
    """The resident set of this process."""

    def __init__(self) -> None:
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._clear = -1
        with suppress(OSError):
            self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self._before_kib = 0
        self.growth_bytes()

    def growth_bytes(self) -> int:
        """By how much the peak since the last call exceeded what was resident at that call."""
        text = os.pread(self._status, 4096, 0)
        peak_kib, now_kib = _kib(text, b"VmHWM:"), _kib(text, b"VmRSS:")
        grew_kib = peak_kib - self._before_kib
        # Where the kernel does not let us forget the peak, it only grows: then growth is counted from peak to peak.
        self._before_kib = peak_kib if self._clear < 0 else now_kib
        if self._clear >= 0:
            os.pwrite(self._clear, b"5", 0)
        return grew_kib * 1024


def _kib(status: bytes, name: bytes) -> int:
    start = status.index(name) + len(name)
    return int(status[start : status.index(b"kB", start)])


_MEMORY = _Memory()
