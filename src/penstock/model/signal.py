"""A recurring event and the observers that are called each time."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """Calls its observers one after another, in the order in which they were connected."""

    __slots__ = ("_observers",)

    def __init__(self) -> None:
        self._observers: list[Callable[P, object]] = []

    def connect(self, observer: Callable[P, object]) -> None:
        """Adds an observer."""
        self._observers.append(observer)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls all observers."""
        for observer in self._observers:
            observer(*args, **kwargs)
