"""Cost limits of one case: 50 ms of CPU time, and memory in proportion to its bytes.

Time is first measured by the wall clock. A case that seems too slow, or slower than any before, is run again and judged
by its least CPU time, because the case is not to blame for a busy machine, nor for one that stalls for a moment; so
before a case counts as too slow it is also run after pauses.

Memory is measured twice. The peak of the resident set during the case is read after every case, including native
allocations: the kernel resets the peak before every case (`clear_refs`), which getrusage cannot. It shows only what the
allocators did not have in reserve, some MiB. Python's allocations are measured exactly (`tracemalloc`), for which the
case is run once more: for every input in SAMPLED_EVERY, for every input that was slower than all before it, and, when a
run ends, for every input that the fuzzer kept (`run.py`).
"""

import ctypes
import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

MIB = 1024 * 1024
CASE_MS_MAX = 50.0
CASE_RESIDENT_BYTES_MAX = 24 * MIB
"""Allowed growth of the resident set, besides RESIDENT_TIMES the input: the allocators keep reserves."""
RESIDENT_TIMES = 64
INPUT_BYTES_MAX = 4096
SAMPLED_EVERY = 64
# Faster cases are not measured again.
_NOTABLE_MS = 2.0
_REPEATS = 3
_PAUSES_S = (0.1, 0.5, 2.0)

Case = Callable[[bytes], None]


class TooSlow(Exception):
    """A case took longer than CASE_MS_MAX."""


class TooLarge(Exception):
    """A case needed more memory than its input allows."""


def proportional(times: int, constant_bytes: int) -> Callable[[bytes], int]:
    """A bound on memory: a multiple of the input, plus a constant."""
    return lambda data: times * len(data) + constant_bytes


ANYTHING_RESIDENT = proportional(0, CASE_RESIDENT_BYTES_MAX)


class Target:
    """A case with its bounds, and its costs so far. Any exception it raises is a finding."""

    def __init__(
        self,
        name: str,
        case: Case,
        bytes_max: Callable[[bytes], int] = ANYTHING_RESIDENT,
        sampled_every: int = SAMPLED_EVERY,
    ) -> None:
        """`bytes_max` returns the peak of Python's allocations that an input may cause."""
        self.name = name
        self.executions = 0
        self.measured = 0
        self.slowest_ms = 0.0
        self.growth_max_bytes = 0
        self.peak_max_bytes = 0
        self.filled_most = 0.0
        """The largest share of its allowed allocations that an input has used."""
        self._case = case
        self._bytes_max = bytes_max
        self._sampled_every = sampled_every

    def __call__(self, data: bytes) -> None:
        """Runs the case once, or several times if it was slow or is measured exactly."""
        self.executions += 1
        _MEMORY.growth_bytes()
        start = time.perf_counter()
        self._case(data)
        took_ms = (time.perf_counter() - start) * 1000
        is_notable = took_ms > _NOTABLE_MS and took_ms > self.slowest_ms
        if is_notable:
            self._judge_time(data, took_ms)
        self._judge_growth(data)
        if is_notable or self.executions % self._sampled_every == 0:
            self.measure(data)

    def measure(self, data: bytes) -> None:
        """Runs the case and judges its allocations."""
        self.measured += 1
        allowed_bytes = self._bytes_max(data)
        peak_bytes = self._peak_bytes(data)
        if peak_bytes * 2 > allowed_bytes:  # the first run of its kind may have compiled a reader, or filled caches
            peak_bytes = min(peak_bytes, self._peak_bytes(data))
        self.peak_max_bytes = max(self.peak_max_bytes, peak_bytes)
        self.filled_most = max(self.filled_most, peak_bytes / allowed_bytes)
        if peak_bytes > allowed_bytes:
            raise TooLarge(f"{peak_bytes:,} bytes for an input of {len(data):,}, where {allowed_bytes:,} are allowed")

    def start_over(self) -> None:
        """Resets the measurements, as after a warm-up."""
        self.executions, self.measured, self.slowest_ms = 0, 0, 0.0
        self.growth_max_bytes, self.peak_max_bytes, self.filled_most = 0, 0, 0.0

    def _judge_time(self, data: bytes, took_ms: float) -> None:
        took_ms = min(took_ms, *(self._processor_ms(data) for _ in range(_REPEATS)))
        for pause_s in _PAUSES_S if took_ms > CASE_MS_MAX else ():
            time.sleep(pause_s)
            took_ms = min(took_ms, self._processor_ms(data))
        self.slowest_ms = max(self.slowest_ms, took_ms)
        if took_ms > CASE_MS_MAX:
            raise TooSlow(f"{took_ms:.0f} ms where {CASE_MS_MAX:.0f} are allowed")

    def _judge_growth(self, data: bytes) -> None:
        grew_bytes = _MEMORY.growth_bytes()
        if grew_bytes <= self.growth_max_bytes:
            return
        allowed_bytes = CASE_RESIDENT_BYTES_MAX + RESIDENT_TIMES * len(data)
        if grew_bytes > allowed_bytes:  # unless an allocator happened to take a reserve
            gc.collect()
            _trim()
            _MEMORY.growth_bytes()
            self._case(data)
            grew_bytes = min(grew_bytes, _MEMORY.growth_bytes())
        self.growth_max_bytes = max(self.growth_max_bytes, grew_bytes)
        if grew_bytes > allowed_bytes:
            raise TooLarge(f"memory grew by {grew_bytes // MIB} MiB where {allowed_bytes // MIB} are allowed")

    def _processor_ms(self, data: bytes) -> float:
        start = time.process_time()
        self._case(data)
        return (time.process_time() - start) * 1000

    def _peak_bytes(self, data: bytes) -> int:
        tracemalloc.start()
        try:
            self._case(data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


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
        """By how much the peak since the last call exceeded the resident set at that call."""
        text = os.pread(self._status, 4096, 0)
        peak_kib, now_kib = _kib(text, b"VmHWM:"), _kib(text, b"VmRSS:")
        grew_kib = peak_kib - self._before_kib
        # Where the kernel does not allow resetting the peak, it only grows: then growth is counted from peak to peak.
        self._before_kib = peak_kib if self._clear < 0 else now_kib
        if self._clear >= 0:
            os.pwrite(self._clear, b"5", 0)
        return grew_kib * 1024


def _kib(status: bytes, name: bytes) -> int:
    start = status.index(name) + len(name)
    return int(status[start : status.index(b"kB", start)])


def _trim() -> None:
    """Returns the C allocator's reserves to the system, where possible."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_MEMORY = _Memory()
