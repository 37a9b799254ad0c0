"""Small tools of these tests: a coroutine that must not wait, an error with its errno."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that must end without waiting for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("it suspended")


@contextmanager
def refused(code: int) -> Iterator[None]:
    """The block must raise OSError with that errno."""
    with pytest.raises(OSError, check=lambda error: error.errno == code):
        yield
