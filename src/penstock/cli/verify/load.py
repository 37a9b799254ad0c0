"""The participants of a run of `penstock verify`: writers, readers, and a process that lists partition offsets.

All of them record their operations and outcomes in one history. They continue whatever happens to brokers; their memory
is bounded. A value consists of its run, its writer and its number; a record's body is its value with a padding that
follows from it, so that a changed body is a value that was never sent.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from penstock.cli.verify.clients import Fate, Lister, Ranges, Reader, Row, Sender, Unreadable
from penstock.client.errors import ClientError
from penstock.client.offsets import Moment
from penstock.verify.recorder import OpenOperation, Recorder

OUTSTANDING_MAX: Final = 1_000
"""The maximum number of records of one writer whose outcome is open."""
SEND_MAX: Final = 8
TICK_S: Final = 0.01
POLL_S: Final = 0.2
PAUSE_S: Final = 0.5
ASK_S: Final = 0.5
ASKS_PER_S_MAX: Final = 32
ASK_MS: Final = 3_000
FILLING: Final = b"."


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the partitions and values of a run."""

    topic: str
    run: str
    record_bytes: int
    is_alone: bool
    """Whether no other client writes to the topic."""

    def partition(self, number: int) -> str:
        """The name of a partition in the history."""
        return f"{self.topic}-{number}"

    def body(self, value: str) -> bytes:
        """The record body of a value."""
        return value.encode().ljust(self.record_bytes, FILLING)

    def value(self, body: bytes) -> str | None:
        """The value of a record in the history; None for a record of another client."""
        text = body.rstrip(FILLING).decode(errors="backslashreplace")
        if not text.startswith(f"{self.run}.") and not self.is_alone:
            return None
        return text if self.body(text) == body else repr(body[:80])


class Pulse:
    """The number of acknowledged records, and the longest wait."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.longest_wait_s = 0.0
        """From a send until its outcome was known, or until it was abandoned."""
        self.first_error: str | None = None

    def beat(self, acknowledged: int, waited_s: float, error: str | None) -> None:
        """Counts a send that has ended."""
        self.acknowledged += acknowledged
        self.longest_wait_s = max(self.longest_wait_s, waited_s)
        self.first_error = self.first_error or error


class Writer:
    """A producer that sends a few records at a time to a random partition, at a given rate."""

    def __init__(
        self, name: str, recorder: Recorder, names: Names, sender: Sender, partitions: Sequence[int], client: str
    ) -> None:
        self.name = name
        self.sent = 0
        self._recorder = recorder
        self._names = names
        self._sender = sender
        self._partitions = partitions
        self._client = client
        self._random = Random(f"{names.run}.{name}")  # noqa: S311 - which partition is next
        self._open = 0
        self._ended = asyncio.Event()
        self._is_closed = False

    async def write(self, rate: float, until_s: float, pulse: Pulse) -> None:
        """Sends records at this rate; time lost because too many were open is not made up for."""
        begun_s = time.monotonic()
        while True:
            now_s = min(time.monotonic(), until_s)
            due = (now_s - begun_s) * rate
            while self.sent < due and self._open < OUTSTANDING_MAX:
                await self._send(min(SEND_MAX, 1 + int(due) - self.sent), pulse)
            if now_s >= until_s:
                return
            if self.sent < due:
                begun_s = now_s - self.sent / rate
            await asyncio.sleep(TICK_S)

    async def _send(self, most: int, pulse: Pulse) -> None:
        partition = self._random.choice(self._partitions)
        count = self._random.randint(1, most)
        values = [f"{self._names.run}.{self.name}.{self.sent + each}" for each in range(count)]
        place = self._names.partition(partition)
        rows: list[list[Any]] = [[place, None, value] for value in values]
        operation = self._recorder.invoke(self.name, "send", rows, client=self._client)
        sending = _Sending(operation, rows, pulse)
        self.sent += count
        self._open += count
        for number, value in enumerate(values):
            await self._sender.send(partition, self._names.body(value), partial(self._told, sending, number))

    def _told(self, sending: "_Sending", number: int, fate: Fate) -> None:
        self._open -= 1
        sending.told(number, fate)
        self._ended.set()

    async def finish(self, deadline_s: float) -> None:
        """Waits for records in flight until the deadline; the outcome of the others stays unknown."""
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                while self._open:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            pass
        await self.close()

    async def close(self) -> None:
        """Abandons records in flight."""
        if not self._is_closed:
            self._is_closed = True
            await self._sender.close()


class _Sending:
    """A send in flight: it ends when the outcome of each of its records is known."""

    __slots__ = ("_begun_s", "_fates", "_left", "_operation", "_pulse", "_rows")

    def __init__(self, operation: OpenOperation, rows: list[list[Any]], pulse: Pulse) -> None:
        self._begun_s = time.monotonic()
        self._operation = operation
        self._rows = [list(row) for row in rows]
        self._pulse = pulse
        self._fates: list[Fate] = []
        self._left = len(rows)

    def told(self, number: int, fate: Fate) -> None:
        """Takes the outcome of one of its records."""
        self._left -= 1
        self._fates.append(fate)
        self._rows[number][1] = fate.offset
        if not self._left:
            self._end()

    def _end(self) -> None:
        errors = [each for each in self._fates if each.error is not None]
        error = errors[0].error if errors else None
        self._pulse.beat(len(self._fates) - len(errors), time.monotonic() - self._begun_s, error)
        if len(errors) < len(self._fates):
            self._operation.ok(self._rows)
        elif all(each.is_unsent for each in errors):
            self._operation.fail(str(error))
        else:
            self._operation.info(str(error))


class Follower:
    """A reader by assignment: without an end until `end_at` sets one, or to an end that is given at the start."""

    def __init__(self, name: str, recorder: Recorder, names: Names, reader: Reader, ranges: Ranges) -> None:
        self.name = name
        self.read = 0
        self.trouble: str | None = None
        """The error that prevents it from reading."""
        self._recorder = recorder
        self._names = names
        self._reader = reader
        self._ranges = ranges
        self._ends = {each: end for each, (_, end) in ranges.items() if end is not None}

    def end_at(self, ends: dict[int, int]) -> None:
        """Sets the offsets at which it may stop."""
        self._ends = ends

    @property
    def is_through(self) -> bool:
        """Whether it has reached all its end offsets."""
        reader = self._reader
        return bool(self._ends) and all(reader.position(each) >= end for each, end in self._ends.items())

    async def follow(self) -> None:
        """Reads until it is through; retries after errors."""
        self._assign({each: start for each, (start, _) in self._ranges.items()})
        while not self.is_through:
            try:
                rows = await self._reader.read(POLL_S)
            except Unreadable as unreadable:
                self.trouble = str(unreadable)
                await asyncio.sleep(PAUSE_S)
                self._resume(from_start=unreadable.is_gone)
            else:
                if rows:
                    self.trouble = None
                    self._note(rows)

    def _note(self, rows: Sequence[Row]) -> None:
        found = [
            [self._names.partition(partition), offset, value]
            for partition, offset, body in rows
            if (value := self._names.value(body)) is not None
        ]
        self.read += len(found)
        self._recorder.invoke(self.name, "poll").ok(found)

    def _resume(self, *, from_start: bool) -> None:
        """Continues at its positions, or from the start if an offset no longer exists."""
        starts = {each: start for each, (start, _) in self._ranges.items()}
        self._assign(starts if from_start else {each: self._reader.position(each) for each in starts})

    def _assign(self, starts: dict[int, int]) -> None:
        places = [[self._names.partition(each), start] for each, start in starts.items()]
        self._recorder.invoke(self.name, "assign", places).ok(places)
        self._reader.assign({each: (start, self._ranges[each][1]) for each, start in starts.items()})

    async def close(self) -> None:
        """Closes the reader."""
        await self._reader.close()


class Asker:
    """Lists the end offsets and log start offsets of partitions repeatedly."""

    name: Final = "asker"

    def __init__(self, recorder: Recorder, names: Names, lister: Lister) -> None:
        self._recorder = recorder
        self._names = names
        self._lister = lister

    async def watch(self, partition: int, partitions: int) -> None:
        """Lists offsets until it is cancelled; failed requests are repeated after a pause."""
        pause_s = max(ASK_S, partitions / ASKS_PER_S_MAX)
        while True:
            for moment in (Moment.LATEST, Moment.EARLIEST) if self._names.is_alone else (Moment.LATEST,):
                try:
                    await self.ask([partition], moment, ASK_MS)
                except ClientError:  # the error is in the history
                    break
            await asyncio.sleep(pause_s)

    async def ask(self, partitions: Sequence[int], moment: Moment, timeout_ms: int) -> dict[int, int]:
        """The offsets, by partition."""
        which = moment.name.lower()
        asked = [[self._names.partition(each), which] for each in partitions]
        operation = self._recorder.invoke(self.name, "list_offsets", asked)
        try:
            found = await self._lister.offsets(partitions, moment, timeout_ms)
        except ClientError as error:
            operation.info(str(error))
            raise
        operation.ok([[self._names.partition(each), which, offset] for each, offset in found.items()])
        return found

    async def close(self) -> None:
        """Closes the lister."""
        await self._lister.close()
