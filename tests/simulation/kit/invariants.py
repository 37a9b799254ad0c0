"""The exception for a broken invariant."""

from collections.abc import Callable
from typing import Final, NoReturn

CONVERGENCE: Final = "Convergence"
"""The only invariant that may fail now and hold later."""


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name


def broken(name: str, what: str) -> NoReturn:
    raise Broken(name, what)


def reason_of(error: BaseException) -> str:
    """The name of the invariant, or of the exception."""
    return str(getattr(error, "name", None) or type(error).__name__)


def has_converged(end: Callable[[], None]) -> bool:
    """Whether `end` finds that the world has converged; any other broken invariant is raised."""
    try:
        end()
    except Broken as trouble:
        if trouble.name != CONVERGENCE:
            raise
        return False
    return True
