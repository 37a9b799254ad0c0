"""Records that a task reads from its consumer, and records that it leaves out."""

import asyncio
import subprocess
import sys
from typing import cast

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetched import Fetched
from penstock.client.errors import ClientError, OutOfRange
from penstock.client.metadata import TopicPartition
from penstock.records.builder import BatchBuilder
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView, batches
from penstock.spark.options import batch_options
from penstock.spark.read import bytes_of, fetch_settings, skip_of, take_some

P = TopicPartition("orders", 0)


def a_batch(first: int, count: int = 1, producer: int | None = None) -> bytes:
    builder = BatchBuilder(base_offset=first)
    if producer is not None:
        builder = BatchBuilder(
            base_offset=first, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    for number in range(count):
        builder.append(None, b"%d" % number, (), 0)
    return bytes(builder.build())


def a_marker(offset: int, producer: int, kind: ControlType) -> bytes:
    marker = EndTransactionMarker(kind, 0)
    return bytes(marker_batch(marker, producer_id=producer, producer_epoch=0, timestamp_ms=0, base_offset=offset))


def fetched(*data: bytes, aborted: tuple[tuple[int, int], ...] | None = None, before: bytes = b"") -> Fetched:
    buffer = memoryview(before + b"".join(data) + b"the start of a batch that was cut off")
    views = tuple(BatchView(buffer, len(before) + sum(map(len, data[:number]))) for number in range(len(data)))
    return Fetched(P, views[0].base_offset, views, aborted, 100, 100, 0)


class Prepared:
    """A consumer that returns prepared results."""

    def __init__(self, *steps: Fetched | ClientError | None) -> None:
        self._steps = list(steps)
        self.waits: list[int | None] = []

    async def fetch_batches(self, timeout_ms: int | None = None) -> Fetched | None:
        self.waits.append(timeout_ms)
        step = self._steps.pop(0)
        if isinstance(step, ClientError):
            raise step
        return step


def some(prepared: Prepared) -> list[Fetched]:
    return asyncio.run(take_some(cast("Consumer", prepared), 1000))


def test_only_the_first_is_waited_for() -> None:
    one, two = fetched(a_batch(0)), fetched(a_batch(1))
    prepared = Prepared(one, two, None)
    assert some(prepared) == [one, two]
    assert prepared.waits == [1000, 0, 0]


def test_trouble_does_not_take_along_what_came_before_it() -> None:
    gone = OutOfRange(TopicPartition("orders", 1), 5, 7, 9, "gone")
    one = fetched(a_batch(0))
    assert some(Prepared(one, gone)) == [one]
    with pytest.raises(OutOfRange):
        some(Prepared(gone))


def test_the_bytes_are_those_of_the_batches_and_nothing_around_them() -> None:
    data = (a_batch(3, 2), a_batch(5))
    found = fetched(*data, before=a_batch(0, 3))
    assert bytes(bytes_of(found)) == b"".join(data)
    assert [batch.base_offset for batch in batches(bytes_of(found))] == [3, 5]


def test_batches_of_aborted_transactions_are_left_out() -> None:
    data = (
        a_batch(0, producer=1),
        a_batch(1, producer=2),
        a_marker(2, 1, ControlType.ABORT),
        a_batch(3, producer=1),
        a_marker(4, 1, ControlType.COMMIT),
        a_marker(5, 2, ControlType.COMMIT),
        a_batch(6),
    )
    found = fetched(*data, aborted=((1, 0),))
    skip = skip_of(found)
    assert skip is not None
    assert [batch.base_offset for batch in found.batches if not skip(batch)] == [1, 3, 6]


def test_where_nothing_was_aborted_nothing_is_left_out() -> None:
    assert skip_of(fetched(a_batch(0), aborted=())) is None
    assert skip_of(fetched(a_batch(0), aborted=None)) is None


def test_as_much_is_fetched_as_the_client_is_told() -> None:
    basic = {"kafka.bootstrap.servers": "a", "subscribe": "orders"}
    settings = fetch_settings(batch_options(basic))
    assert settings.ahead_bytes_total_max == settings.bytes_max == 8 << 20
    told = batch_options({**basic, "kafka.fetch.max.bytes": "1000", "kafka.max.partition.fetch.bytes": "100"})
    assert fetch_settings(told).ahead_bytes_total_max == 1000
    assert fetch_settings(told).partition_bytes_max == 100


def test_what_a_worker_has_loaded_is_not_looked_through_after_every_task() -> None:
    """In its own process, because all live objects of this one would count as long-lived."""
    program = (
        "import gc; from penstock.spark.read import settle; settle(); first = gc.get_freeze_count(); "
        "more = [[] for _ in range(1000)]; settle(); print(first > 50_000, gc.get_freeze_count() <= first)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]
