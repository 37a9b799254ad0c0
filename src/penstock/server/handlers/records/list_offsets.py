"""ListOffsets: the first or last offset of a partition, or the first from a timestamp on.

Serves    ListOffsets 1–11.
Answers   offset -1 if there is none. OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before version 5), in place of the last
          offset or of -1, while the high watermark is below the start of this leader's epoch, and while this broker's
          lease has expired, so that another broker may lead: offsets never go back (KIP-207, R29), whichever broker
          answers.
Departs   from Kafka 4.3: the highest timestamp (-3) is searched among the records that the client may read; replicas
          get the same offsets as consumers. There is no tiered storage: -4 equals -2, and -5 and -6 find nothing. A
          partition that is named several times is refused once. The first 100,000 records and 10 MiB of a batch are
          searched; if the record may lie beyond them, the first record that was not searched is returned.
"""

from typing import NamedTuple, Protocol

from penstock.log.log import Log
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.server.loop.pieces import Turns, partitions_once
from penstock.server.partitions.opening import Opener, offset_for_time, offset_of_max_timestamp
from penstock.server.partitions.partition import Partition
from penstock.server.partitions.partition_checks import check_epoch, find_or_raise
from penstock.server.partitions.partitions import Partitions
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

READ_COMMITTED = 1
FIRST_WITH_NOT_AVAILABLE = 5
FIRST_WITH_EPOCH = 4


class OffsetNotAvailable(ProtocolError):
    """The high watermark may still be below the one that an earlier leader has reported."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class InTouch(Protocol):
    """A broker's lease: while it runs, no other broker leads the broker's partitions."""

    @property
    def is_in_touch(self) -> bool:
        """Whether the lease is running; otherwise other brokers may lead without this broker knowing."""


class Sight(NamedTuple):
    """Visibility limits of one request, for all its partitions."""

    is_committed: bool
    is_in_touch: bool
    """Whether the broker's lease is running; otherwise it may no longer lead."""


class ListOffsetsHandler:
    """Finds offsets in partitions that are led here."""

    def __init__(self, partitions: Partitions, opener: Opener, lease: InTouch) -> None:
        self._partitions = partitions
        self._opener = opener
        self._lease = lease

    @serves(ListOffsetsRequest)
    async def list_offsets(self, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        """Answers partition by partition."""
        turns = Turns()
        sight = Sight(request.isolation_level == READ_COMMITTED, self._lease.is_in_touch)
        entries = ((topic.name, each.partition_index, each) for topic in request.topics for each in topic.partitions)
        named = await partitions_once(entries, turns)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic,
                    partitions=[
                        _failed(asked, ErrorCode.INVALID_REQUEST)
                        if (topic, asked.partition_index) in named.repeated
                        else await self._answer(call, topic, asked, sight, turns)
                        async for asked in turns.through(found.values())
                    ],
                )
                for topic, found in named.topics.items()
            ]
        )

    async def _answer(
        self, call: Call, topic: str, asked: ListOffsetsPartition, sight: Sight, turns: Turns
    ) -> ListOffsetsPartitionResponse:
        if asked.timestamp < 0 and call.version < FIRST_VERSION.get(asked.timestamp, 0x7FFF):
            return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
        try:
            partition = find_or_raise(self._partitions, topic, asked.partition_index)
            check_epoch(partition, asked.current_leader_epoch)
            timestamp_ms, offset, epoch = await _look_up(partition, asked.timestamp, sight, self._opener, turns)
        except OffsetNotAvailable as error:
            is_known = call.version >= FIRST_WITH_NOT_AVAILABLE
            return _failed(asked, error.code if is_known else ErrorCode.LEADER_NOT_AVAILABLE)
        except ProtocolError as error:
            return _failed(asked, error.code)
        except OSError:
            return _failed(asked, ErrorCode.KAFKA_STORAGE_ERROR)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=ErrorCode.NONE,
            timestamp=timestamp_ms,
            offset=offset,
            leader_epoch=epoch if call.version >= FIRST_WITH_EPOCH else -1,
        )


async def _look_up(
    partition: Partition, timestamp_ms: int, sight: Sight, opener: Opener, turns: Turns
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each -1 where there is none."""
    log = partition.log
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, log.epochs.epoch_at(log.start_offset)
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    limit = log.last_stable_offset if sight.is_committed else log.high_watermark
    if timestamp_ms == LATEST:
        _require_present(sight, log)
        return -1, limit, partition.leader_epoch
    if timestamp_ms == MAX_TIMESTAMP:
        found = await offset_of_max_timestamp(log, limit, opener, turns)
    else:
        found = await offset_for_time(log, timestamp_ms, limit, opener, turns)
    if found is None:
        _require_present(sight, log)
        return -1, -1, -1
    return found


def _require_present(sight: Sight, log: Log) -> None:
    """Raises OffsetNotAvailable if the high watermark may be stale."""
    if not sight.is_in_touch:
        raise OffsetNotAvailable("no controller has answered this broker lately, and others may lead by now")
    start_offset = max((begun.start_offset for begun in log.epochs), default=0)
    if start_offset > log.high_watermark:
        raise OffsetNotAvailable(f"high watermark {log.high_watermark} lags behind the epoch's start {start_offset}")


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
