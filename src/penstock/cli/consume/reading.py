"""Reads records and prints them: partitions from given starts, or as a member of a group that commits what is printed.

Reading goes on through outages, which `Outages` reports. A record counts as read when it was written to stdout.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from penstock.cli.broken_pipe import until_reader_leaves
from penstock.cli.consume.outages import Outages, gone, is_gone
from penstock.cli.consume.standard_output import StandardOutput
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError
from penstock.client.groups.group_consumer import GroupConsumer
from penstock.client.offsets import Isolation
from penstock.model.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.cli.consume.formats import Printer
    from penstock.client.client import Client
    from penstock.client.consumer.consumer import Start

PIECE_RECORDS_MAX: Final = 500
LOOK_MS: Final = 500
"""How often outages are looked for while no record arrives."""
TOPIC_LOOK_MS: Final = 5_000
WAITED_S: Final = 3.0
"""A start that takes longer is explained."""
REJOIN_S: Final = 1.0
WRITTEN_S: Final = 0.2
"""How long an interrupted member waits for a reader of its output."""
FOREVER_MS: Final = 2**62
AHEAD_BYTES_TOTAL_MAX: Final = 64 * 1024 * 1024


def fetch_settings(*, is_committed: bool) -> FetchSettings:
    """Bounded in memory, and patient: `Outages` decides when to give up."""
    return FetchSettings(
        isolation=Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED,
        ahead_bytes_total_max=AHEAD_BYTES_TOTAL_MAX,
        patience_ms=FOREVER_MS,
    )


class Printing:
    """Prints the records of a reader, up to a count if one is given."""

    def __init__(
        self,
        client: "Client",
        topic: str,
        printer: "Printer",
        count: int | None,
        outages: Outages,
        counted: Callable[[int], None],
    ) -> None:
        self._client = client
        self._topic = topic
        self._clock = client.cluster.ports.clock
        self._printer = printer
        self._left = count
        self._outages = outages
        self._counted = counted
        self._output = StandardOutput(sys.stdout.fileno())
        self._looked_ms = 0

    async def read(self, reader: Consumer | GroupConsumer) -> None:
        """Returns when the count is reached, or the end that was asked for, or when nobody reads the output."""
        async with until_reader_leaves(self._output.descriptor):
            await self._read(reader)

    async def _read(self, reader: Consumer | GroupConsumer) -> None:
        while self._left is None or self._left > 0:
            most = PIECE_RECORDS_MAX if self._left is None else min(PIECE_RECORDS_MAX, self._left)
            piece = await reader.fetch_records(most, LOOK_MS)
            self._outages.look(self._clock.monotonic_ms(), reader.troubles())
            if piece is None:
                if isinstance(reader, Consumer) and reader.is_at_end:
                    return
                if not reader.assignment:
                    await self._look_at_topic()
                continue
            try:
                await self._output.write(b"".join(map(self._printer, piece.messages())))
            except asyncio.CancelledError:
                if isinstance(reader, GroupConsumer) and await self._output.has_written(WRITTEN_S):
                    reader.hand_back()  # what was printed is read: it is committed when the member leaves
                raise
            self._counted(len(piece.records))
            self._left = None if self._left is None else self._left - len(piece.records)
        if isinstance(reader, GroupConsumer):
            reader.hand_back()

    async def _look_at_topic(self) -> None:
        """A member of a group loses its partitions without an error when the topic is deleted."""
        if self._clock.monotonic_ms() - self._looked_ms < TOPIC_LOOK_MS:
            return
        self._looked_ms = self._clock.monotonic_ms()
        try:
            unknown = await self._client.cluster.refresh([self._topic], timeout_ms=LOOK_MS)
        except ClientError:
            return  # the membership fails, too, and reports it
        is_known = unknown.get(self._topic) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._outages.look_at_topic(self._clock.monotonic_ms(), is_known=is_known)

    async def read_as_member(
        self, group: str, start: "Start", fetching: FetchSettings, tell: Callable[[str], None]
    ) -> None:
        """Joins the group, and joins again if an outage of its coordinator has ended the membership."""
        topic, has_joined = self._topic, False
        while True:
            member = self._client.group_consumer(group, topic, start=start, fetching=fetching)
            try:
                async with explained(f"Waiting for a partition of {topic}: group {group} comes together.", tell):
                    await member.join()
                if not member.assignment:
                    tell(f"Every partition of {topic} has a reader in group {group}: waiting until one is free.")
                has_joined = True
                await self.read(member)
            except ClientError as error:
                if has_joined and is_gone(error):
                    raise gone(topic) from error
                if not has_joined or not error.is_retriable:
                    raise
                tell(f"Group {group}: {str(error).rstrip('.')}. Joining again until it succeeds; Ctrl-C ends.")
            else:
                return
            finally:
                await self._client.release(member)
            await asyncio.sleep(REJOIN_S)


@asynccontextmanager
async def explained(why: str, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Prints a sentence if the block takes long."""
    timer = asyncio.get_running_loop().call_later(WAITED_S, tell, why)
    try:
        yield
    finally:
        timer.cancel()


@asynccontextmanager
async def ended_by_sigterm() -> AsyncIterator[None]:
    """Lets SIGTERM end the block as Ctrl-C does, so that a member leaves its group."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
