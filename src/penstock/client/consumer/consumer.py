"""Reads assigned partitions from given starts, each record once, with bounded prefetching.

A start is an offset, "earliest", "latest", or a timestamp (`At`). With `until_end`, reading stops at the log end as of
the assignment. Groups are handled elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.client.arguments import check_value, typed
from penstock.client.cluster import Cluster
from penstock.client.consumer.cursor import Cursor
from penstock.client.consumer.fetched import Fetched
from penstock.client.consumer.fetcher import Fetcher, FetchSettings, Trouble
from penstock.client.errors import ClientError, Closed, OutOfRange, Refused
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
"""What to do about an offset that is not in the log: raise an error, or continue at one end of the log."""


class Message(NamedTuple):
    """A record with its topic and partition."""

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
        """The records, each with topic and partition."""
        topic, partition = self.partition
        for record in self.records:
            yield Message(topic, partition, *record)


class Consumer:
    """See the module. One reader at a time."""

    @typed
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
        """Stops fetching."""
        if not self._is_closed:
            self._is_closed = True
            await self._fetcher.stop()

    # --- assignment

    @typed
    async def assign(
        self, starts: Mapping[TopicPartition, Start], *, until_end: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Replaces the assignment with these partitions."""
        self.assign_ranges(await self.resolve(starts, until_end=until_end, timeout_ms=timeout_ms))

    @typed
    def assign_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Replaces the assignment with these partitions, each from an offset up to an end (None: without end)."""
        self._fetcher.cursors.clear()
        self._fetcher.queue.clear()
        self._open = None
        for partition, (offset, end_offset) in ranges.items():
            self._fetcher.cursors[partition] = Cursor(partition, offset, end_offset)
        self._fetcher.wake()

    @typed
    def add_ranges(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Adds partitions to the assignment."""
        for partition, (offset, end_offset) in ranges.items():
            self._fetcher.cursors[partition] = Cursor(partition, offset, end_offset)
        self._fetcher.wake()

    @typed
    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions from the assignment: no record of them is returned any more, even if already fetched."""
        for partition in partitions:
            cursor = self._fetcher.cursors.pop(partition, None)
            if cursor is not None and self._open is not None and self._open[0] is cursor:
                self._open = None

    @typed
    def fail(self, trouble: Exception) -> None:
        """Stops fetching; this and every later read raises the error."""
        self._fetcher.fail(trouble)

    def check(self) -> None:
        """Raises Closed or the error that ended fetching, if any, even if records are available."""
        if self._is_closed:
            raise Closed("this consumer was closed")
        if self._fetcher.trouble is not None:
            raise self._fetcher.trouble

    @typed
    async def assign_topic(
        self, topic: str, start: Start, *, until_end: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Replaces the assignment with all current partitions of a topic."""
        known = await self._cluster.topic(topic, timeout_ms=timeout_ms)
        starts = {TopicPartition(topic, each.index): start for each in known.partitions}
        await self.assign(starts, until_end=until_end, timeout_ms=timeout_ms)

    @typed
    async def seek(self, partition: TopicPartition, start: Start, *, timeout_ms: int | None = None) -> None:
        """Continues at another place in a partition."""
        cursor = self._cursor(partition)
        (offset, _) = (await self.resolve({partition: start}, until_end=False, timeout_ms=timeout_ms))[partition]
        cursor.seek(offset, cursor.end_offset)
        if self._open is not None and self._open[0] is cursor:
            self._open = None
        self._fetcher.wake()

    @typed
    def pause(self, partition: TopicPartition, *, is_paused: bool = True) -> None:
        """Stops or resumes fetching a partition."""
        self._cursor(partition).is_paused = is_paused
        self._fetcher.wake()

    @typed
    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned (or where that record would be)."""
        return self._cursor(partition).position

    @typed
    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark as of the last fetch; -1 before the first."""
        return self._cursor(partition).high_watermark

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return sorted(self._fetcher.cursors)

    def troubles(self) -> list[Trouble]:
        """The partitions that cannot be read at the moment; fetches are retried for `patience_ms` of the settings."""
        return self._fetcher.troubles()

    @property
    def is_at_end(self) -> bool:
        """Whether all partitions are read to their end, as requested by `until_end`."""
        return all(cursor.is_at_end for cursor in self._fetcher.cursors.values())

    def _cursor(self, partition: TopicPartition) -> Cursor:
        cursor = self._fetcher.cursors.get(partition)
        if cursor is None:
            raise ValueError(f"{partition} is not assigned")
        return cursor

    @typed
    async def resolve(
        self, starts: Mapping[TopicPartition, Start], *, until_end: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[int, int | None]]:
        """Resolves starts to offsets, and to end offsets if `until_end`."""
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

    @typed
    async def fetch_batches(self, timeout_ms: int | None = None) -> Fetched | None:
        """The next batches of some partition as stored, including aborted ones and transaction markers.

        Returns None if none arrives in time, or at the end if one was requested. Batches may extend past that end.
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

    @typed
    async def fetch_records(self, max_records: int = 500, timeout_ms: int | None = None) -> PartitionRecords | None:
        """The next records of some partition, up to `max_records`; None if none arrives in time, or at a given end."""
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
        """The error to raise; for an offset out of range, it includes the offsets that are in the log."""
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
    """Raises ValueError if the start is invalid, TypeError if it has a wrong type."""
    if isinstance(start, At):
        check_value("At", "timestamp_ms", start.timestamp_ms, int)
    if not isinstance(start, int):
        _moment(start)
    elif start < 0:
        raise ValueError(f"offsets count from 0: there is no {start} to start at")


def check_batch(max_records: int) -> None:
    """Raises ValueError if the batch size is less than 1."""
    if max_records < 1:
        raise ValueError(f"a batch has at least one record, not {max_records}")


def check_out_of_range(name: str) -> None:
    """Raises ValueError if the policy is unknown."""
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
