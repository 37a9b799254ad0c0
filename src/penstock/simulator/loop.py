"""An asyncio event loop on virtual time.

Callbacks run in the order in which they were scheduled; when none is ready, time jumps to the next timer (ties: the one
scheduled first). There are no threads, sockets or signals, so a run depends only on the code and its seed. An unhandled
exception, a deadlock or too many events end the run with an error.
"""

import asyncio
import gc
import heapq
import sys
import warnings
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeAlias, TypeVar, TypeVarTuple, cast

from penstock.simulator.callback import Callback
from penstock.simulator.errors import Deadlock, Forbidden, SimulationError, TooManyEvents, Unhandled
from penstock.simulator.lane import LANE, Gate, Lane

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Handler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

START_S = 1_000.0
"""Initial time of every loop; the same for all seeds."""

EVENTS_MAX = 20_000_000
"""Maximum number of callbacks in one loop's life."""

EVENTS_PER_INSTANT_MAX = 500_000
"""Maximum number of callbacks while time stands still: more is a busy loop."""

COLLECT_EVERY_EVENTS = 100_000
"""Garbage is collected at fixed points of the run, see `World`."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module."""

    def __init__(self, events_max: int = EVENTS_MAX, events_per_instant_max: int = EVENTS_PER_INSTANT_MAX) -> None:
        self.events = 0
        """Callbacks run so far."""
        self.failures: list[dict[str, Any]] = []
        """Contexts of unhandled exceptions."""
        self.root = Lane("world")
        self._now_s = START_S
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._timers_cancelled = 0
        self._sequence = 0
        self._task_sequence = 0
        self._events_max = events_max
        self._events_per_instant_max = events_per_instant_max
        self._lanes = [self.root]
        self._gates_shut = 0
        self._is_stopping = False
        self._is_unwinding = False
        self._is_closed = False
        self._handler: Handler | None = None

    # --- time and callbacks

    def time(self) -> float:
        """Virtual seconds; never goes back."""
        return self._now_s

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Callback:
        """Schedules a callback after all that are ready now."""
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        handle = Callback(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Callback:
        """Schedules a callback in `delay` seconds."""
        return self._at(self._now_s + delay, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Callback:
        """Schedules a callback at that time, or now if it has passed."""
        return self._at(when, callback, args, context)

    def _at(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Callback:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        if when != when:  # noqa: PLR0124 - not a number would disorder the heap
            raise ValueError("a timer needs a time")
        context = copy_context() if context is None else context
        handle = Callback(callback, args, context, when, self._timer_was_cancelled)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Creates a task in the lane of its context, by default the caller's."""
        if self._is_closed:
            if isinstance(coro, Coroutine):
                coro.close()
            raise RuntimeError("Event loop is closed")
        lane = LANE.get(self.root) if context is None else context.get(LANE, self.root)
        if name is None:
            self._task_sequence += 1
            name = f"{lane.name}/{self._task_sequence}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=str(name), context=context)
        lane.adopt(task)
        return task

    # --- running

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Runs until the future is done and returns its result; fails on any unhandled exception."""
        self._must_be_idle()
        task = cast("asyncio.Future[T]", asyncio.ensure_future(cast("Awaitable[T]", future), loop=self))
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)
        if not task.done():
            raise SimulationError("the loop was stopped before the future was done")
        return task.result()

    def run_forever(self) -> None:
        """Runs until `stop`."""
        self._must_be_idle()
        self._is_stopping = False
        old_hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._finish_generator)
        _set_running_loop(self)
        try:
            self._run()
        finally:
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*old_hooks)
        self.raise_failure()

    def stop(self) -> None:
        """Ends the run after the current callback."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Whether the loop is running."""
        return _get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether the loop was closed."""
        return self._is_closed

    def close(self) -> None:
        """Drops all pending callbacks and unwinds suspended coroutines."""
        self._must_be_idle()
        _set_running_loop(self)  # cleanup code finds this loop, and does not create a real one
        try:
            for lane in self._lanes:
                self._unwind(lane)
        finally:
            _set_running_loop(None)
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are finished when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is none."""

    # --- lanes

    def new_lane(self, name: str) -> Lane:
        """Creates a lane for one life of a node."""
        lane = Lane(name)
        self._lanes.append(lane)
        return lane

    def hold(self, lane: Lane) -> None:
        """Makes the lane's callbacks wait from now on."""
        if lane.gate is Gate.OPEN:
            lane.gate = Gate.HELD
            self._gates_shut += 1

    def release(self, lane: Lane) -> None:
        """Schedules the lane's waiting callbacks now, in order."""
        if lane.gate is Gate.HELD:
            lane.gate = Gate.OPEN
            self._gates_shut -= 1
            self._ready.extend(lane.held)  # type: ignore[arg-type]
            lane.held.clear()

    def end(self, lane: Lane) -> None:
        """Ends the lane: its callbacks never run again; its coroutines are unwound where they can do no harm."""
        if lane.gate is Gate.ENDED:
            return
        if lane.gate is Gate.OPEN:
            self._gates_shut += 1
        lane.gate = Gate.ENDED
        lane.held.clear()
        self.call_soon(self._unwind, lane, context=self.root.context.copy())

    # --- errors

    def get_exception_handler(self) -> Handler | None:
        """The handler that was set, or None."""
        return self._handler

    def set_exception_handler(self, handler: Handler | None) -> None:
        """Passes unhandled exceptions to the handler from now on; they do not fail the run."""
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Records the failure and stops the run."""
        self.failures.append(context)
        self.stop()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Called by asyncio for unhandled exceptions."""
        if self._is_unwinding:
            return  # errors while the tasks of a killed process are unwound do not count
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def raise_failure(self) -> None:
        """Raises if an exception was not handled."""
        if self.failures:
            context = self.failures[0]
            raise Unhandled(f"{context.get('message', 'unhandled exception')} (of {len(self.failures)})") from (
                context.get("exception")
            )

    def raise_unseen(self) -> None:
        """Raises if a task failed and its exception was not retrieved; ended lives do not count."""
        self.raise_failure()
        for lane in self._lanes:
            for task in lane.unseen_errors() if lane.gate is not Gate.ENDED else ():
                raise Unhandled(f"task {task.get_name()} failed and nobody looked") from task.exception()

    def get_debug(self) -> bool:
        """Asyncio's debug mode reads the real clock, so it is off."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Only off is allowed."""
        if enabled:
            raise Forbidden("asyncio's debug mode reads the real clock")

    # --- inside

    def _run(self) -> None:
        ready = self._ready
        limit = min(self._events_max, self.events + self._events_per_instant_max)
        while not self._is_stopping:
            if not ready:
                self._jump()
                limit = min(self._events_max, self.events + self._events_per_instant_max)
                continue
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            if self._gates_shut and self._is_gated(handle):
                continue
            self.events += 1
            if self.events > limit:
                raise TooManyEvents(f"{self.events} events, stuck at {self._now_s} s; last: {handle!r}")
            if not self.events % COLLECT_EVERY_EVENTS and not gc.isenabled():
                gc.collect()
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"exception in {handle!r}", "exception": error})

    def _jump(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise Deadlock("nothing is ready and no timer is set; pending: " + self._describe_pending())
        now = self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            handle.when_cancelled = None
            if handle.is_cancelled:
                self._timers_cancelled -= 1
            else:
                ready.append(handle)

    def _is_gated(self, handle: Callback) -> bool:
        lane = handle.context.get(LANE)
        if lane is None or lane.gate is Gate.OPEN:
            return False
        if lane.gate is Gate.HELD:
            lane.held.append(handle)
        else:
            self._is_unwinding = True
            handle.cancel()  # releases its callback and arguments
            self._is_unwinding = False
        return True

    def _timer_was_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > 100 and self._timers_cancelled * 2 > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2].is_cancelled]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _unwind(self, lane: Lane) -> None:
        self._is_unwinding = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lane.close_tasks()
        finally:
            self._is_unwinding = False

    def _stop_with(self, _: asyncio.Future[Any]) -> None:
        self.stop()

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_closed and LANE.get(self.root).gate is not Gate.ENDED:
            self.create_task(generator.aclose())

    def _must_be_idle(self) -> None:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        if _get_running_loop() is not None:
            raise RuntimeError("a loop is already running")

    def _describe_pending(self) -> str:
        rows = []
        for lane in self._lanes:
            for task in lane.pending():
                stack = task.get_stack(limit=1)
                place = f" at {stack[0].f_code.co_filename.rpartition('/')[2]}:{stack[0].f_lineno}" if stack else ""
                held = f" ({lane.gate.value})" if lane.gate is not Gate.OPEN else ""
                rows.append(f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '?')}{place}{held}")
        return "; ".join(rows) or "no task"


def _forbid(name: str) -> Callable[..., NoReturn]:
    instead = {
        "call_soon_threadsafe": "there are no threads",
        "run_in_executor": "use the Workers port",
        "set_default_executor": "use the Workers port",
    }.get(name, "use the Network port" if "soc" in name or "conn" in name else "use a port")

    def forbidden(*_: object, **__: object) -> NoReturn:
        raise Forbidden(f"{name} has no place in a simulation: {instead}")

    return forbidden


for _name in [name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")]:
    if _name not in vars(VirtualLoop) and _name not in {"get_task_factory", "set_task_factory"}:
        setattr(VirtualLoop, _name, _forbid(_name))


def new_loop(events_max: int = EVENTS_MAX, events_per_instant_max: int = EVENTS_PER_INSTANT_MAX) -> VirtualLoop:
    """Creates a loop at time START_S."""
    return VirtualLoop(events_max, events_per_instant_max)  # type: ignore[abstract]  # the rest is forbidden above
