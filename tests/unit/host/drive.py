"""Test helpers: run a coroutine that must not suspend, and expect an OSError with its errno."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that must end without suspending."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("it suspended")


@contextmanager
def refused(code: int) -> Iterator[None]:
    """Expects the block to raise OSError with that errno."""
    with pytest.raises(OSError, check=lambda error: error.errno == code):
        yield
