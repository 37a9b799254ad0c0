"""Queries leaders for end offsets, from which the coordinator computes the lag of groups.

A query returns the start and end of each log, and the timestamp of the first record at or after an offset. Each leader
has its own client, so that a leader that does not answer delays no other. Each partition succeeds or fails by itself.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.bootstrap import Address
from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation, Moment, by_topic
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

ASK_MS: Final = 2_000
_FETCHING: Final = FetchSettings(wait_ms_max=100, bytes_max=8 * 1024 * 1024, ahead_bytes_max=1)
_CONSUMER: Final = -1

Place = tuple[TopicPartition, int]
"""A partition and an offset."""


class Span(NamedTuple):
    """The offset range of a log: its first offset and its end."""

    start: int
    end: int


class EndOffsetQuery:
    """See the module. Close it when done."""

    def __init__(self, address: Address, ports: ClientPorts) -> None:
        self._address = address
        self._cluster = Cluster(
            str(address), ports=ports, client_id="penstock-lag", timeout_ms=ASK_MS, request_timeout_ms=ASK_MS
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._cluster.close()

    async def spans(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Span]:
        """Returns the spans that the leader reports; it may no longer lead the other partitions."""
        connection = await self._cluster.connection_to(self._address)
        starts = await _offsets(connection, partitions, Moment.EARLIEST)
        ends = await _offsets(connection, partitions, Moment.LATEST)
        return {each: Span(starts[each], end) for each, end in ends.items() if each in starts}

    async def first_timestamps(
        self,
        offsets: Mapping[TopicPartition, Iterable[int]],
        spans: Mapping[TopicPartition, Span],
        noted: dict[Place, int | None],
    ) -> None:
        """Stores in `noted` the timestamp of the first record at or after each offset; None if there is no record."""
        left = {each: deque(sorted(begins)) for each, begins in offsets.items() if begins}
        if not left:
            return
        consumer = Consumer(self._cluster, _FETCHING, out_of_range="earliest")
        try:
            consumer.assign_ranges({each: (begins[0], spans[each].end) for each, begins in left.items()})
            while consumer.assignment and (piece := await consumer.fetch_records(1)) is not None:
                partition, record = piece.partition, piece.records[0]
                begins = left[partition]
                while begins and begins[0] <= record.offset:
                    noted[partition, begins.popleft()] = record.timestamp_ms
                consumer.drop([partition])
                if begins:
                    consumer.add_ranges({partition: (begins[0], spans[partition].end)})
        finally:
            for each in consumer.assignment:
                if consumer.position(each) >= spans[each].end:
                    noted.update({(each, begin): None for begin in left[each]})
            await consumer.close()


async def _offsets(
    connection: BrokerConnection, partitions: Sequence[TopicPartition], moment: Moment
) -> dict[TopicPartition, int]:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[ListOffsetsPartition(partition_index=each.partition, timestamp=moment) for each in asked],
        )
        for topic, asked in by_topic(partitions).items()
    ]
    request = ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=Isolation.READ_UNCOMMITTED, topics=topics, timeout_ms=ASK_MS
    )
    response = await connection.ask(request, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, part.partition_index): part.offset
        for topic in response.topics
        for part in topic.partitions
        if part.error_code is ErrorCode.NONE
    }
