"""The port of drivers in worlds of cores: the clock of a node, and the heap of its world."""

from collections.abc import Callable
from typing import Generic, NoReturn, Protocol, TypeAlias, TypeVar

N = TypeVar("N")
N_co = TypeVar("N_co", covariant=True)

Work: TypeAlias = tuple[float, Callable[[], None]]
"""The duration of an operation in milliseconds, and the function to call at its end."""


class World(Protocol):
    """The heap."""

    time_ms: float

    def at(self, time_ms: float, work: Callable[..., None], *arguments: object) -> None: ...


class Node(Protocol[N_co]):
    """A node with a clock that may run fast or slow, jump, and stop while the node is paused."""

    life: int

    @property
    def world(self) -> World: ...

    @property
    def now(self) -> N_co:
        """The time that is passed to its steppers."""

    @property
    def now_ms(self) -> int: ...

    @property
    def is_paused(self) -> bool: ...

    def world_ms(self, at_ms: int) -> float:
        """The world's time at which the node's clock shows `at_ms`."""


class HeapTimer:
    """A pending callback."""

    __slots__ = ("at_ms", "callback")

    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HeapPort(Generic[N]):
    """The port of one life of a node."""

    def __init__(self, node: Node[N]) -> None:
        self._node = node
        self._life = node.life
        self._timers: list[HeapTimer] = []

    def now(self) -> N:
        return self._node.now

    def now_ms(self) -> int:
        return self._node.now_ms

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> HeapTimer:
        timer = HeapTimer(at_ms, callback)
        self._timers = [each for each in self._timers if each.callback is not None]
        self._timers.append(timer)
        self._push(timer)
        return timer

    def start(self, work: Work, ended: Callable[[BaseException | None], None]) -> None:
        takes_ms, done = work
        world = self._node.world
        world.at(world.time_ms + takes_ms, self._end, done, ended)

    def _end(self, done: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        if self._node.life == self._life:
            done()
            ended(None)

    def look(self) -> None:
        """Fires timers that are due after the clock has jumped, or after a pause has ended."""
        for timer in list(self._timers):
            self._fire(timer)

    def _push(self, timer: HeapTimer) -> None:
        world = self._node.world
        world.at(max(self._node.world_ms(timer.at_ms), world.time_ms), self._fire, timer)

    def _fire(self, timer: HeapTimer) -> None:
        callback, node = timer.callback, self._node
        if callback is None or node.life != self._life or node.is_paused:
            return
        if node.now_ms < timer.at_ms:
            self._push(timer)
            return
        timer.callback = None
        callback()


def raise_again(error: BaseException) -> NoReturn:
    """Re-raises: a world does not continue after an error."""
    raise error
