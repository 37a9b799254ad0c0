"""Reads a split in a task: fetches some megabytes ahead, drops invisible batches, converts the rest to columns.

A task holds at most the data fetched ahead, one Fetch response in flight and the decoded form of one response, however
large its split is. Every batch returned is of the topic that was planned: a topic that was recreated meanwhile fails
the task. Records that are no longer in the log are handled according to `on_gap`.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from penstock.client.blocking import SyncClient
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetched import Fetched, visible
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError, OutOfRange
from penstock.client.metadata import TopicPartition
from penstock.records.header import BatchView
from penstock.spark.gaps import Gap, meet
from penstock.spark.latest import NEEDED, latest_rows
from penstock.spark.link import connect
from penstock.spark.offsets import shown
from penstock.spark.options import COLUMNS, HEADERS, SourceOptions
from penstock.spark.plan import Piece, Task, unpacked
from penstock.spark.survey import check_id

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MIB = 1024 * 1024
FETCH_BYTES = 8 * MIB
PARTITION_FETCH_BYTES = 4 * MIB
WAIT_MS = 500
BATCH_BYTES_MAX = 128 * MIB
"""The limit of a batch's decompressed size: many times a broker's default limit, and little of a worker's memory."""
TAKEN_BYTES = 4 * MIB
"""The amount taken over from the fetching thread at a time."""

log = logging.getLogger("penstock.spark")


class NothingCame(ClientError):
    """Records that must exist did not arrive in time."""


def read_task(task: Task, options: SourceOptions) -> "Iterator[RecordBatch]":
    """The records of a task, in order within each partition."""
    from penstock.spark.columns import RecordRange, stream  # heavy, and only tasks need it

    every = (*COLUMNS, HEADERS) if options.has_headers else COLUMNS
    settle()
    with connect(options) as client:
        reader = _Reader(client, task, options)
        try:
            for fetched, end in reader.fetched():
                topic, partition = fetched.partition
                wanted = RecordRange(topic, partition, fetched.offset, end, has_headers=options.has_headers)
                for batch in stream(bytes_of(fetched), wanted, skip_of(fetched), bytes_max=BATCH_BYTES_MAX):
                    yield batch if options.columns == every else batch.select(options.columns)
        finally:
            reader.close()


@cache
def settle() -> None:
    """Loads the decoder, and exempts all objects loaded so far from garbage collection, once per process.

    A Spark worker runs a full collection after each task. With Numba loaded, that takes a tenth of a second each time.
    """
    from penstock.spark.columns.decoding import fastest

    fastest()
    gc.freeze()


def read_latest(task: Task, options: SourceOptions) -> "Iterator[RecordBatch]":
    """The last record of each key of a task's partitions, each of which the task has whole."""
    needed = replace(options, columns=(*options.columns, *(name for name in NEEDED if name not in options.columns)))
    for piece in task.pieces:
        yield from latest_rows(partial(read_task, Task(task.topics, (piece,)), needed), options.columns)


def fetch_settings(options: SourceOptions) -> FetchSettings:
    """The limits on how much is fetched at a time and ahead."""
    fetch_bytes = options.kafka_number("fetch.max.bytes", FETCH_BYTES)
    return FetchSettings(
        isolation=options.isolation,
        wait_ms_max=options.kafka_number("fetch.max.wait.ms", WAIT_MS),
        bytes_max=fetch_bytes,
        partition_bytes_max=options.kafka_number("max.partition.fetch.bytes", PARTITION_FETCH_BYTES),
        ahead_bytes_max=fetch_bytes,
        ahead_bytes_total_max=fetch_bytes,
        patience_ms=options.poll_timeout_ms,
    )


class _Reader:
    """Fetches the pieces of a task."""

    def __init__(self, client: SyncClient, task: Task, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._ids = dict(task.topics)
        self._pieces = {piece.partition: piece for piece in unpacked(task)}
        self._cluster = client.admin.cluster
        self._consumer = client.run(_opened(self._cluster, fetch_settings(options), self._pieces, self._ids))

    def close(self) -> None:
        self._client.run(self._consumer.close())

    def fetched(self) -> Iterator[tuple[Fetched, int]]:
        """The fetched batches, each with the end offset of the partition's piece."""
        while not self._consumer.is_at_end:
            try:
                some = self._client.run(take_some(self._consumer, self._options.poll_timeout_ms))
            except OutOfRange as missing:
                self._pass_over(missing)
                continue
            if not some and not self._consumer.is_at_end:
                raise NothingCame(self._late())
            for fetched in some:
                self._check(fetched)
                yield fetched, self._pieces[fetched.partition].end

    def _check(self, fetched: Fetched) -> None:
        """Checks the topic id. Metadata is refreshed before a new topic can be fetched, so the id is never stale."""
        known = self._cluster.view.topics.get(fetched.partition.topic)
        if known is not None:
            check_id(known.name, self._ids[known.name], known.topic_id)

    def _pass_over(self, missing: OutOfRange) -> None:
        piece = self._pieces[missing.partition]
        first, start, end = missing.offset, missing.log_start, missing.log_end
        is_below = first < start
        if is_below:
            go_on, reason = min(start, piece.end), f"the log begins at {start} now"
        elif first >= end:
            go_on, reason = piece.end, f"the log ends at {end}: it was cut back, or the topic is another one"
        else:
            go_on, reason = first, missing.message or "the log was cut back"
        if is_below and piece.is_from_start and first == piece.first:
            log.info("%s begins at %d by now: reading from there", piece.partition, start)
        else:
            meet(Gap(piece.partition, first, go_on, reason), self._options, self._client)
        self._client.run(self._consumer.seek(piece.partition, go_on))

    def _late(self) -> str:
        waiting = [each for each, piece in self._pieces.items() if self._consumer.position(each) < piece.end]
        first = min(waiting)
        return (
            f"Nothing of {shown(waiting)} came within {self._options.poll_timeout_ms} ms, although the records from "
            f"offset {self._consumer.position(first)} to {self._pieces[first].end} of {first} should be there. With "
            "read_committed an open transaction may hold them back; kafkaConsumer.pollTimeoutMs says how long to wait."
        )


async def _opened(
    cluster: Cluster,
    settings: FetchSettings,
    pieces: Mapping[TopicPartition, Piece],
    ids: Mapping[str, bytes],
) -> Consumer:
    await cluster.refresh(list(ids))
    for name, known in ids.items():
        check_id(name, known, (await cluster.topic(name)).topic_id)
    consumer = Consumer(cluster, settings)
    consumer.assign_ranges({each: (piece.first, piece.end) for each, piece in pieces.items()})
    return consumer


async def take_some(consumer: Consumer, timeout_ms: int) -> list[Fetched]:
    """Waits for a fetch and takes others that are ready. An error is left to the next call if there is data."""
    taken: list[Fetched] = []
    size_bytes = 0
    while size_bytes < TAKEN_BYTES:
        try:
            fetched = await consumer.fetch_batches(0 if taken else timeout_ms)
        except ClientError:
            if taken:
                break
            raise
        if fetched is None:
            break
        taken.append(fetched)
        size_bytes += fetched.size_bytes
    return taken


def bytes_of(fetched: Fetched) -> memoryview:
    """The batches as contiguous bytes of the Fetch response."""
    first, last = fetched.batches[0], fetched.batches[-1]
    return memoryview(first.buffer)[first.position : last.position + last.size_bytes]


def skip_of(fetched: Fetched) -> Callable[[BatchView], bool] | None:
    """Selects the invisible batches: control batches, and batches of aborted transactions."""
    if not fetched.aborted:
        return None  # control batches are left out anyway
    seen = {batch.base_offset for batch in visible(fetched.batches, fetched.aborted)}
    return lambda batch: batch.base_offset not in seen
