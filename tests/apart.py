"""What is measured in a process that does nothing else.

Before Python 3.12.9 `tracemalloc.stop` may end the process if another thread asks for memory meanwhile; and what other
threads take, such as those that earlier tests have left, is counted too.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function of a module gives in a process with one thread: the same for all tests, as it starts slowly."""
    return _process().submit(function, *args, **kwargs).result()


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
