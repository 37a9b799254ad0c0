"""Runs a measurement in a process of its own with one thread.

Before Python 3.12.9 `tracemalloc.stop` may crash the process if another thread allocates memory meanwhile. Allocations
of other threads, such as those left by earlier tests, are counted too.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a module-level function in a single-threaded process, which all tests share because it starts slowly."""
    return _process().submit(function, *args, **kwargs).result()


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
