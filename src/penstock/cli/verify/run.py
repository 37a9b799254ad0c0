"""One run of `penstock verify`: writes and reads for a while, lets everything settle, and reads it all again.

Every step has a deadline, so that a run ends whatever the cluster does. A sentence states the question that then
remains open.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from penstock.cli.verify.clients import Clients, Lister
from penstock.cli.verify.history_file import FRESH, SIGNATURE, end_history
from penstock.cli.verify.load import Asker, Follower, Names, Pulse, Writer
from penstock.cli.verify.topic import RunTopic
from penstock.client.errors import ClientError
from penstock.client.offsets import Moment
from penstock.verify.recorder import Recorder

FOLLOWERS: Final = 2
TICK_S: Final = 0.2

Show = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Load:
    """The load on the topic."""

    seconds: float
    rate: float
    """Records per second of all producers together."""
    producers: int
    record_bytes: int
    settle_s: float
    """How long each step after the load may take."""


@dataclass(frozen=True, slots=True)
class Driven:
    """The results of a run, apart from the history."""

    client: str
    sent: int
    acknowledged: int
    longest_wait_s: float
    """The longest wait for the outcome of a send."""
    open_question: str | None
    """Why the history does not end with everything read; None if it does."""


class Run:
    """See the module."""

    def __init__(
        self, topic: RunTopic, load: Load, clients: Clients, lister: Lister, recorder: Recorder, show: Show
    ) -> None:
        self._lister = lister
        self._partitions = topic.partitions
        self._load = load
        self._clients = clients
        self._recorder = recorder
        self._show = show
        self._is_new = topic.is_new
        self._names = Names(topic.name, secrets.token_hex(3), load.record_bytes, is_alone=topic.is_new)
        self._pulse = Pulse()
        self._followers: list[Follower] = []
        self._stack = AsyncExitStack()

    async def drive(self) -> Driven:
        """Runs all steps, from the first record to the last reader."""
        async with self._stack:
            asker = Asker(self._recorder, self._names, self._lister)
            self._stack.push_async_callback(asker.close)
            moment = Moment.EARLIEST if self._is_new else Moment.LATEST
            starts = await asker.ask(self._partitions, moment, self._settle_ms)
            writers = [self._writer(number) for number in range(self._load.producers)]
            question = await self._work(asker, writers, starts)
            pulse = self._pulse
            sent = sum(each.sent for each in writers)
            return Driven(self._clients.name, sent, pulse.acknowledged, pulse.longest_wait_s, question)

    async def _work(self, asker: Asker, writers: Sequence[Writer], starts: dict[int, int]) -> str | None:
        """Writes and reads; returns the question that remains open, if any."""
        async with asyncio.TaskGroup() as tasks:
            count = len(self._partitions)
            watching = [tasks.create_task(asker.watch(each, count)) for each in self._partitions]
            readers = [
                self._follower(f"reader-{number}", {each: (start, None) for each, start in starts.items()})
                for number in range(FOLLOWERS)
            ]
            following = [tasks.create_task(each.follow()) for each in readers]
            showing = tasks.create_task(self._tick())
            await self._write(writers)
            await _cancel([showing])
            question = await self._catch_up(asker, readers, following)
            await _cancel([*watching, *following])
        if question is not None:
            return question
        question = await self._read_anew(asker, starts)
        if question is None:
            end_history(self._recorder)
        return question or self._behind(readers)

    # --- the steps

    async def _write(self, writers: Sequence[Writer]) -> None:
        until_s = time.monotonic() + self._load.seconds
        rate = self._load.rate / len(writers)
        await asyncio.gather(*(each.write(rate, until_s, self._pulse) for each in writers))
        self._tell("settling")
        deadline_s = self._deadline_s()
        await asyncio.gather(*(each.finish(deadline_s) for each in writers))

    async def _catch_up(
        self, asker: Asker, readers: Sequence[Follower], following: "Sequence[asyncio.Task[None]]"
    ) -> str | None:
        """Lets the readers reach the end, if they can; returns the reason if there is no end to reach."""
        if not self._pulse.acknowledged:
            return f"nothing was acknowledged: {self._pulse.first_error or 'no answer came'}"
        ends = await self._ends(asker)
        if isinstance(ends, str):
            return ends
        for each in readers:
            each.end_at(ends)
        await asyncio.wait(following, timeout=self._load.settle_s)
        return None

    async def _read_anew(self, asker: Asker, starts: dict[int, int]) -> str | None:
        """Reads everything with new readers, after all writers and other readers have ended."""
        self._tell("reading all of it anew")
        ends = await self._ends(asker)
        if isinstance(ends, str):
            return ends
        readers = [
            self._follower(name, {each: (start, ends[each]) for each, start in starts.items()}) for name in FRESH
        ]
        reading = [asyncio.create_task(each.follow()) for each in readers]
        await asyncio.wait(reading, timeout=self._load.settle_s)
        for task in reading:
            if task.done():
                task.result()
        await _cancel(reading)
        question = self._behind(readers)
        if question is not None:
            await self._ends(asker)  # an end offset that went back explains why no reader reaches it
        return question

    async def _ends(self, asker: Asker) -> dict[int, int] | str:
        """The end offsets of partitions; or the reason why they are unknown."""
        try:
            return await asker.ask(self._partitions, Moment.LATEST, self._settle_ms)
        except ClientError as error:
            return f"nobody told within {self._load.settle_s:g} s where all partitions end: {error}"

    def _behind(self, readers: Iterable[Follower]) -> str | None:
        for each in readers:
            if not each.is_through:
                why = f": {each.trouble}" if each.trouble else ""
                return f"{each.name} had not read everything after {self._load.settle_s:g} s more{why}"
        return None

    # --- participants

    def _writer(self, number: int) -> Writer:
        name = f"writer-{number}"
        client = f"{self._clients.name}, {SIGNATURE}"
        sender = self._clients.sender(name)
        writer = Writer(name, self._recorder, self._names, sender, self._partitions, client)
        self._stack.push_async_callback(writer.close)
        return writer

    def _follower(self, name: str, ranges: dict[int, tuple[int, int | None]]) -> Follower:
        follower = Follower(name, self._recorder, self._names, self._clients.reader(name), ranges)
        self._stack.push_async_callback(follower.close)
        self._followers.append(follower)
        return follower

    # --- time

    @property
    def _settle_ms(self) -> int:
        return int(self._load.settle_s * 1000)

    def _deadline_s(self) -> float:
        return time.monotonic() + self._load.settle_s

    async def _tick(self) -> None:
        begun_s = time.monotonic()
        while True:
            read = sum(each.read for each in self._followers)
            text = f"{self._pulse.acknowledged:,} records acknowledged, {read:,} read"
            self._show(time.monotonic() - begun_s, text)
            await asyncio.sleep(TICK_S)

    def _tell(self, doing: str) -> None:
        self._show(self._load.seconds, f"{self._pulse.acknowledged:,} records acknowledged, {doing}")


async def _cancel(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
