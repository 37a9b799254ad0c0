"""Feeds one stepper from one queue and carries out its effects in order.

A stepper is a core that decides: `step(event, now)` returns the effects it wants. A driver is the only way to run one,
in a node and in the simulated worlds of cores: the two differ in the table of effects and the port, not in the loop.

Invariants:
- A step never runs inside a step; events posted meanwhile wait in the queue.
- Effects are carried out in the order in which steps returned them, and before the next event is taken.
- A barrier (an effect that must be durable) is done before any later effect is carried out, of its step or a later
  one. Steps continue meanwhile, and their effects wait.
- After events of a total weight of `weight_max`, the rest of the queue waits until other tasks have run, in its order.
- After `close` no event is stepped and no effect is carried out, whatever is posted.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

E = TypeVar("E")
F = TypeVar("F")
N = TypeVar("N")
T = TypeVar("T")
W = TypeVar("W")
E_contra = TypeVar("E_contra", contravariant=True)
F_co = TypeVar("F_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)
N_contra = TypeVar("N_contra", contravariant=True)
W_contra = TypeVar("W_contra", contravariant=True)

TIMER_MS_MAX: Final = 60_000
"""A timer is checked again after this time at the latest."""


class Stepper(Protocol[E_contra, F_co, N_contra]):
    """A core that returns effects and carries out none itself."""

    @property
    def wake_at(self) -> int | None:
        """Time at which it wants a time-passed event; None: never."""

    def step(self, event: E_contra, now: N_contra) -> Sequence[F_co]:
        """Handles an event and returns the effects to carry out."""


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Cancels the callback."""


class Port(Protocol[N_co, W_contra]):
    """Time, and work that takes time: an event loop, or the heap of a simulated world."""

    def now(self) -> N_co:
        """The time as passed to steppers."""

    def now_ms(self) -> int:
        """The time by the clock of `wake_at`."""

    def call_at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Calls `callback` at this time, or a little later."""

    def start(self, work: W_contra, ended: Callable[[BaseException | None], None]) -> None:
        """Starts work that takes time; `ended` is called when it is over, unless it was cancelled."""


class Driver(Generic[E, F, N, W]):
    """See the module."""

    __slots__ = (
        "_barriers",
        "_carry_out",
        "_events",
        "_is_blocked",
        "_is_resting",
        "_is_running",
        "_on_broken",
        "_outbox",
        "_port",
        "_stepper",
        "_time_passed",
        "_timer",
        "_timer_ms",
        "_weight_max",
        "is_closed",
    )

    def __init__(
        self,
        stepper: Stepper[E, F, N],
        port: Port[N, W],
        effects: Mapping[type[Any], Callable[[Any], W | None]],
        *,
        time_passed: E,
        on_broken: Callable[[BaseException], None],
        barriers: Collection[type[Any]] = (),
        weight_max: int = 1 << 62,
    ) -> None:
        """`effects` maps each type of effect to a function that carries it out, at once or as work that it returns.

        `on_broken` is called when a step, an effect or work has raised: the driver is closed then, because the
        stepper's state no longer matches reality. The caller of `post` gets no exception.
        """
        self._stepper = stepper
        self._port = port
        self._carry_out = effects
        self._barriers = barriers
        self._time_passed = time_passed
        self._on_broken = on_broken
        self._weight_max = weight_max
        self._events: deque[tuple[E, int]] = deque()
        self._outbox: deque[F] = deque()
        self._is_running = False
        self._is_blocked = False
        self._is_resting = False
        """Whether the queue waits until other tasks have run."""
        self._timer: Timer | None = None
        self._timer_ms = 0
        self.is_closed = False

    def post(self, event: E, weight: int = 1) -> None:
        """Passes an event to the stepper: now, or when the events before it are carried out."""
        if not self.is_closed:
            self._events.append((event, weight))
            if not self._is_running and not self._is_resting:
                self._run()

    def post_first(self, *events: E) -> None:
        """Passes events to the stepper before all queued events."""
        if not self.is_closed:
            self._events.extendleft((event, 1) for event in reversed(events))
            if not self._is_running:
                self._run()

    def absorb(self, effects: Sequence[F]) -> None:
        """Queues effects that the stepper has returned from a direct call, after those already queued."""
        if self.is_closed:
            return
        self._outbox.extend(effects)
        if not self._is_running:
            self._run()

    def call(self, ask: Callable[[], tuple[T, Sequence[F]]]) -> T:
        """Returns the result of a direct call to the stepper; its effects are queued, and events wait meanwhile."""
        was_running, self._is_running = self._is_running, True
        try:
            value, effects = ask()
        finally:
            self._is_running = was_running
        self.absorb(effects)
        return value

    def close(self) -> None:
        """Closes the driver. Running work continues, but its end is ignored."""
        self.is_closed = True
        self._events.clear()
        self._outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        events, outbox, room = self._events, self._outbox, self._weight_max
        self._is_running = True
        try:
            while True:
                if outbox and not self._is_blocked:
                    self._do(outbox.popleft())
                elif events and room > 0:
                    event, weight = events.popleft()
                    room -= weight
                    outbox.extend(self._stepper.step(event, self._port.now()))
                else:
                    break
        except Exception as error:
            self._break(error)
            return
        finally:
            self._is_running = False
        if self.is_closed:
            return
        if events and not self._is_resting:
            self._is_resting = True
            self._port.call_at(self._port.now_ms(), self._rest_is_over)
        self._set_timer()

    def _rest_is_over(self) -> None:
        self._is_resting = False
        if not self.is_closed and not self._is_running:
            self._run()

    def _do(self, effect: F) -> None:
        kind = type(effect)
        work = self._carry_out[kind](effect)
        if work is None:
            return
        if kind in self._barriers:
            self._is_blocked = True
            self._port.start(work, self._pass)
        else:
            self._port.start(work, self._ended)

    def _pass(self, error: BaseException | None) -> None:
        """Called when a barrier is done: later effects may be carried out."""
        self._is_blocked = False
        self._ended(error)
        if not self.is_closed and not self._is_running:
            self._run()

    def _ended(self, error: BaseException | None) -> None:
        if error is not None and not self.is_closed:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        self.close()
        self._on_broken(error)

    # --- time -----------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        wake_at = self._stepper.wake_at
        if self._timer is not None:
            if wake_at is not None and self._timer_ms <= wake_at:
                return
            self._timer.cancel()
            self._timer = None
        if wake_at is None:
            return
        now_ms = self._port.now_ms()
        self._timer_ms = min(max(now_ms + 1, wake_at), now_ms + TIMER_MS_MAX)
        self._timer = self._port.call_at(self._timer_ms, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        wake_at = self._stepper.wake_at
        if wake_at is not None and wake_at <= self._port.now_ms():
            self.post(self._time_passed)
        else:
            self._set_timer()
