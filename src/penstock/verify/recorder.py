"""The recorder: starts operations and records how each of them ended.

One recorder serves one thread; the histories of several recorders are merged by time (`merge_histories`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from penstock.verify.history import Event, EventType, Function, Partition, Process, line_of


class OpenOperation:
    """An operation in progress. Exactly one of `ok`, `fail` and `info` ends it."""

    __slots__ = ("_invoke", "_is_open", "_recorder")

    def __init__(self, recorder: "Recorder", invoke: Event) -> None:
        self._recorder = recorder
        self._invoke = invoke
        self._is_open = True

    @property
    def index(self) -> int:
        """The index of its invoke, which names the operation in findings."""
        return self._invoke.index

    def ok(self, value: Sequence[Any] | None = None, *, rebalanced: Sequence[Partition] | None = None) -> None:
        """Ends the operation: it happened."""
        self._end("ok", value, None, rebalanced)

    def fail(
        self, err: str, value: Sequence[Any] | None = None, *, rebalanced: Sequence[Partition] | None = None
    ) -> None:
        """Ends the operation: it definitely did not happen."""
        self._end("fail", value, err, rebalanced)

    def info(
        self, err: str, value: Sequence[Any] | None = None, *, rebalanced: Sequence[Partition] | None = None
    ) -> None:
        """Ends the operation: it may have happened, or may happen later (time-out, disconnect, purge)."""
        self._end("info", value, err, rebalanced)

    def _end(
        self, type_: EventType, value: Sequence[Any] | None, err: str | None, rebalanced: Sequence[Partition] | None
    ) -> None:
        if not self._is_open:
            raise ValueError(f"operation {self.index} has ended before")
        self._is_open = False
        invoke = self._invoke
        self._recorder.record(
            type_,
            invoke.process,
            invoke.function,
            value,
            operation=invoke.index,
            err=err,
            pid=invoke.producer_id,
            epoch=invoke.producer_epoch,
            rebalanced=rebalanced,
        )


class Recorder:
    """Numbers events, adds the time of the given clock, and writes each event as one line."""

    def __init__(self, clock_ns: Callable[[], int], write: Callable[[str], object]) -> None:
        self._clock_ns = clock_ns
        self._keep: Callable[[Event], object] = lambda event: write(line_of(event))
        self._next_index = 0

    @classmethod
    def in_memory(cls, clock_ns: Callable[[], int], keep: Callable[[Event], object]) -> Self:
        """A recorder that passes events to `keep`, such as `events.append`, instead of writing lines."""
        recorder = cls(clock_ns, lambda _: None)
        recorder._keep = keep
        return recorder

    def invoke(
        self,
        process: Process,
        function: Function,
        value: Sequence[Any] | None = None,
        *,
        pid: int | None = None,
        epoch: int | None = None,
        client: str | None = None,
    ) -> OpenOperation:
        """Starts an operation; a process may have several in progress, as a pipelining producer has."""
        return OpenOperation(self, self.record("invoke", process, function, value, pid=pid, epoch=epoch, client=client))

    def record(
        self,
        type_: EventType,
        process: Process,
        function: Function,
        value: Sequence[Any] | None,
        *,
        operation: int | None = None,
        err: str | None = None,
        pid: int | None = None,
        epoch: int | None = None,
        client: str | None = None,
        rebalanced: Sequence[Partition] | None = None,
    ) -> Event:
        """Writes one event; `invoke` and the operations call it."""
        event = Event(
            self._next_index,
            self._clock_ns(),
            process,
            type_,
            function,
            None if value is None else list(value),
            operation,
            err,
            pid,
            epoch,
            client,
            None if rebalanced is None else list(rebalanced),
        )
        self._next_index += 1
        self._keep(event)
        return event
