"""Compiles the kernels once per process, and keeps the machine code for later processes.

If it cannot be kept, every process compiles again, which takes seconds; if the kernels cannot be compiled at all, the
plain decoder is used. Either case is logged in one sentence, and neither is an error.
"""

import logging
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

from penstock.spark.columns.cache import VARIABLE, directory

log = logging.getLogger(__name__)
_one_at_a_time = Lock()


class Kernels(NamedTuple):
    """The functions of `kernels`, compiled."""

    fill: Callable[..., bool]
    fill_headers: Callable[..., bool]


def load() -> Kernels | None:
    """The compiled kernels, or None if they cannot be compiled."""
    with _one_at_a_time:
        return _load()


@cache
def _load() -> Kernels | None:
    try:
        import numba

        if numba.config.DISABLE_JIT:
            raise RuntimeError("NUMBA_DISABLE_JIT forbids it")
        return _compile_once()
    except ImportError as trouble:
        reason = f"{trouble}; pip install '.[spark]' in a checkout of Penstock brings what it needs"
    except Exception as trouble:
        reason = _first_line(trouble)
    log.warning("Records are decoded in plain Python, many times slower: the fast decoder cannot be had (%s).", reason)
    return None


def _compile_once() -> Kernels:
    """Compiles the kernels for this and later processes; for this one alone if they cannot be kept."""
    import numba
    from numba.core.errors import NumbaError

    before = numba.config.CACHE_DIR
    try:
        numba.config.CACHE_DIR = str(directory())
        return compile_kernels(cache=True)
    except NumbaError:
        raise
    except Exception as trouble:
        log.warning(
            "Each process compiles the fast decoder anew, which takes seconds: it cannot be kept (%s);"
            " set %s to a directory that you alone can write to.",
            _first_line(trouble),
            VARIABLE,
        )
    finally:
        # Numba reads this when a kernel is declared; the setting of other users of Numba is restored.
        numba.config.CACHE_DIR = before
    return compile_kernels()


def compile_kernels(**options: Any) -> Kernels:
    """Compiles the kernels for the array types that they are called with; `options` are Numba's."""
    from numba import boolean, int32, int64, njit, types, uint8

    from penstock.spark.columns import kernels

    data = types.Array(uint8, 1, "C", readonly=True)
    strings = (int32[::1], uint8[::1], uint8[::1])
    longs = int64[::1]
    fill = boolean(data, int64[:, ::1], int64, int64, *strings, *strings, longs, longs, int32[::1], longs, longs)
    fill_headers = boolean(data, longs, int64, int64, int32[::1], uint8[::1], int32[::1], uint8[::1], *strings, longs)
    return Kernels(
        njit(fill, nogil=True, **options)(kernels.fill),
        njit(fill_headers, nogil=True, **options)(kernels.fill_headers),
    )


def _first_line(trouble: Exception) -> str:
    """The first line of an error; compilers print many."""
    return next(iter(str(trouble).splitlines()), type(trouble).__name__)
