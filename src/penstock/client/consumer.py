"""Reads partitions that it is told to read, from where it is told: ahead of its reader, within bounds, exactly once.

Starts are an offset, "earliest", "latest", or a moment in time (`At`). With `until_end` the reader gets what was there
when it asked, and then an end. Groups are not its business.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.cursor import Cursor
from penstock.client.errors import ClientError, Closed, OutOfRange, Refused
from penstock.client.fetched import Fetched
from penstock.client.fetcher import Fetcher, FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import NO_OFFSET, Moment, list_offsets
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.records.rows import Headers, Record


class At(NamedTuple):
    """The first record with this timestamp or a later one; the end of the log if there is none."""

    timestamp_ms: int


Start = int | At | Literal["earliest", "latest"]
OutOfRangeName = Literal["error", "earliest", "latest"]
OUT_OF_RANGE: tuple[OutOfRangeName, ...] = ("error", "earliest", "latest")
"""What to do about an offset that is not in the log: tell the reader, or go on at one of the log's ends."""


class Message(NamedTuple):
    """A record and where it was."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Some records of one partition, in order."""

    partition: TopicPartition
    records: list[Record]
    high_watermark: int

    def messages(self) -> Iterator[Message]:
        """The same, each with its place."""
        topic, partition = self.partition
        for record in self.records:
            yield Message(topic, partition, *record)


class Consumer:
    """See the module. One reader at a time."""

    def __init__(
        self,
        cluster: Cluster,
        settings: FetchSettings | None = None,
        *,
        out_of_range: OutOfRangeName = "error",
        checks_crc: bool = True,
    ) -> None:
        check_out_of_range(out_of_range)
        self._cluster = cluster
        self._settings = settings if settings is not None else FetchSettings()
        self._out_of_range = out_of_range
        self._checks_crc = checks_crc
        self._fetcher = Fetcher(cluster, self._settings)
        self._open: tuple[Cursor, int, Fetched, Iterator[Record]] | None = None
        self._is_closed = False

    async def close(self) -> None:
        """Ends the fetching."""
        if not self._is_closed:
            self._is_closed = True
            await self._fetcher.stop()

    # --- where to read

    async def assign(
        self, starts: Mapping[TopicPartition, Start], *, until_end: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Reads these partitions and no others."""
        self.assign_ranges(await self.resolve(starts, until_end=until_end, timeout_ms=timeout_ms))

    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Reads these partitions and no others, each from an offset up to an end, or for ever."""
        self._fetcher.cursors.clear()
        self._fetcher.queue.clear()
        self._open = None
        for partition, (offset, end_offset) in ranges.items():
            self._fetcher.cursors[partition] = Cursor(partition, offset, end_offset)
        self._fetcher.wake()

    def add_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Reads these partitions, too."""
        for partition, (offset, end_offset) in ranges.items():
            self._fetcher.cursors[partition] = Cursor(partition, offset, end_offset)
        self._fetcher.wake()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these no more: no record of them is given from now on, fetched or not."""
        for partition in partitions:
            cursor = self._fetcher.cursors.pop(partition, None)
            if cursor is not None and self._open is not None and self._open[0] is cursor:
                self._open = None

    def fail(self, trouble: Exception) -> None:
        """Whoever reads is told this, now and whenever it asks again."""
        self._fetcher.fail(trouble)

    def check(self) -> None:
        """Raises what a reader would be told now, whatever is there to be read."""
        if self._is_closed:
            raise Closed("this consumer was closed")
        if self._fetcher.trouble is not None:
            raise self._fetcher.trouble

    async def assign_topic(
        self, topic: str, start: Start, *, until_end: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Reads all partitions that a topic has now."""
        known = await self._cluster.topic(topic, timeout_ms=timeout_ms)
        starts = {TopicPartition(topic, each.index): start for each in known.partitions}
        await self.assign(starts, until_end=until_end, timeout_ms=timeout_ms)

    async def seek(self, partition: TopicPartition, start: Start, *, timeout_ms: int | None = None) -> None:
        """Goes on elsewhere in a partition."""
        cursor = self._cursor(partition)
        (offset, _) = (await self.resolve({partition: start}, until_end=False, timeout_ms=timeout_ms))[partition]
        cursor.seek(offset, cursor.end_offset)
        if self._open is not None and self._open[0] is cursor:
            self._open = None
        self._fetcher.wake()

    def pause(self, partition: TopicPartition, *, is_paused: bool = True) -> None:
        """Fetches no more of a partition, or again."""
        self._cursor(partition).is_paused = is_paused
        self._fetcher.wake()

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the reader gets (or where that record would be)."""
        return self._cursor(partition).position

    def high_watermark(self, partition: TopicPartition) -> int:
        """The end of the log as of the last fetch; -1 before the first."""
        return self._cursor(partition).high_watermark

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is read, in order."""
        return sorted(self._fetcher.cursors)

    @property
    def is_at_end(self) -> bool:
        """Whether everything that was asked for `until_end` has been read."""
        return all(cursor.is_at_end for cursor in self._fetcher.cursors.values())

    def _cursor(self, partition: TopicPartition) -> Cursor:
        cursor = self._fetcher.cursors.get(partition)
        if cursor is None:
            raise ValueError(f"{partition} is not assigned")
        return cursor

    async def resolve(
        self, starts: Mapping[TopicPartition, Start], *, until_end: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """Offsets for starts, and ends if there are to be any."""
        isolation = self._settings.isolation
        moments = {each: _moment(start) for each, start in starts.items() if not isinstance(start, int)}
        found = await list_offsets(self._cluster, moments, isolation, timeout_ms=timeout_ms) if moments else {}
        too_late = [each for each, at in found.items() if at.offset == NO_OFFSET]
        wanted = list(starts) if until_end else too_late
        latest: dict[TopicPartition, int] = {}
        if wanted:
            ends = await list_offsets(
                self._cluster, dict.fromkeys(wanted, Moment.LATEST), isolation, timeout_ms=timeout_ms
            )
            latest = {each: at.offset for each, at in ends.items()}
        result: dict[TopicPartition, tuple[int, int | None]] = {}
        for each, start in starts.items():
            offset = start if isinstance(start, int) else found[each].offset
            result[each] = (latest[each] if offset == NO_OFFSET else offset, latest[each] if until_end else None)
        return result

    # --- reading

    async def fetch_batches(self, timeout_ms: int | None = None) -> Fetched | None:
        """The next batches of some partition as they are stored, aborted ones and markers included.

        None when nothing came in time or, if it was asked for, at the end. Batches may reach beyond that end.
        """
        if self._open is not None:
            raise ValueError("the records of a fetch are being read one by one: read them all first")
        found = await self._next(timeout_ms)
        if found is None:
            return None
        cursor, fetched = found
        cursor.used_up(fetched)
        self._fetcher.wake()
        return fetched

    async def fetch_records(self, max_records: int = 500, timeout_ms: int | None = None) -> PartitionRecords | None:
        """The next records of some partition, at most so many; None when none came in time or at a given end."""
        check_batch(max_records)
        deadline_ms = None if timeout_ms is None else self._cluster.ports.clock.monotonic_ms() + timeout_ms
        while True:
            if self._open is None:
                left_ms = None
                if deadline_ms is not None:
                    left_ms = max(0, deadline_ms - self._cluster.ports.clock.monotonic_ms())
                found = await self._next(left_ms)
                if found is None:
                    return None
                cursor, fetched = found
                rows = fetched.records(end_offset=cursor.end_offset, checks_crc=self._checks_crc)
                self._open = (cursor, cursor.life, fetched, rows)
            if records := self._read_open(max_records):
                return records

    def _read_open(self, max_records: int) -> PartitionRecords | None:
        assert self._open is not None
        cursor, life, fetched, rows = self._open
        records: list[Record] = []
        try:
            for record in rows:
                records.append(record)
                if len(records) >= max_records:
                    break
            else:
                self._open = None
        except ProtocolError as error:
            self._open = None
            cursor.trouble = Refused(error.code, str(error), str(cursor.partition))
            if not records:
                raise cursor.trouble from error
        if cursor.life != life:
            return None
        if records:
            cursor.read(records)
        if self._open is None and cursor.trouble is None:
            cursor.used_up(fetched)
            self._fetcher.wake()
        return PartitionRecords(cursor.partition, records, fetched.high_watermark) if records else None

    async def _next(self, timeout_ms: int | None) -> tuple[Cursor, Fetched] | None:
        queue = self._fetcher.queue
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while True:
                    self.check()
                    while queue:
                        cursor, life, fetched = queue.popleft()
                        if cursor.life == life and self._fetcher.cursors.get(cursor.partition) is cursor:
                            return cursor, fetched
                    if self._fetcher.cursors and self.is_at_end:
                        return None
                    await self._meet_trouble()
                    arrival = self._fetcher.arrival()
                    await asyncio.shield(arrival)
        except TimeoutError:
            return None

    async def _meet_trouble(self) -> None:
        for cursor in list(self._fetcher.cursors.values()):
            if (trouble := cursor.trouble) is None:
                continue
            is_out = isinstance(trouble, Refused) and trouble.code is ErrorCode.OFFSET_OUT_OF_RANGE
            if is_out and self._out_of_range != "error":
                await self.seek(cursor.partition, self._out_of_range)
            else:
                raise await self._explained(cursor, trouble)

    async def _explained(self, cursor: Cursor, trouble: ClientError) -> ClientError:
        """Trouble as the reader is told of it; for an offset that is not there, with the offsets that are."""
        if not (isinstance(trouble, Refused) and trouble.code is ErrorCode.OFFSET_OUT_OF_RANGE):
            return trouble
        partition = cursor.partition
        try:
            first = (await list_offsets(self._cluster, {partition: Moment.EARLIEST}))[partition].offset
            end = (await list_offsets(self._cluster, {partition: Moment.LATEST}))[partition].offset
        except ClientError:
            return trouble
        text = (
            f"{trouble.message}; the log reaches from {first} to {end}: seek, or reset the group, or say where to go "
            'on with out_of_range="earliest" or "latest"'
        )
        return OutOfRange(partition, cursor.fetch_offset, first, end, text)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (found := await self.fetch_records()) is not None:
            for message in found.messages():
                yield message


def check_start(start: Start) -> None:
    """Raises ValueError if nobody can start there."""
    if not isinstance(start, int):
        _moment(start)
    elif start < 0:
        raise ValueError(f"offsets count from 0: there is no {start} to start at")


def check_batch(max_records: int) -> None:
    """Raises ValueError if a batch of so many makes no sense."""
    if max_records < 1:
        raise ValueError(f"a batch has at least one record, not {max_records}")


def check_out_of_range(name: str) -> None:
    """Raises ValueError if nobody knows what to do then."""
    if name not in OUT_OF_RANGE:
        raise ValueError(f"out_of_range is one of {', '.join(OUT_OF_RANGE)}, not {name!r}")


def _moment(start: At | Literal["earliest", "latest"]) -> int:
    match start:
        case "earliest":
            return Moment.EARLIEST
        case "latest":
            return Moment.LATEST
        case At(timestamp_ms):
            return timestamp_ms
    raise ValueError(f'a start is an offset, "earliest", "latest" or At(timestamp_ms), not {start!r}')
