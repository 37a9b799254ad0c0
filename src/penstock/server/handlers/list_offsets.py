"""ListOffsets: which offset is first, last, or the first at a time.

Serves    ListOffsets 1–11.
Answers   offset -1 where there is none. OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before version 5) while the high
          watermark lags behind the start of this leader's epoch, and where others may lead by now without this node
          knowing: so offsets never go back (KIP-207, R29), whomever one asks.
Departs   from Kafka 4.3: the record with the highest timestamp (-3) is looked for among those that the reader may see;
          replicas get what consumers get. Nothing is tiered, so -4 is -2, and -5 and -6 find nothing. A partition that
          is named several times is refused once. Of a batch the first 100,000 records and 10 MiB are looked at: behind
          them the first record that was not looked at is the answer.
"""

from typing import NamedTuple

from penstock.log.log import Log
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.opening import Opener, offset_for_time, offset_of_max_timestamp
from penstock.server.partition import Partition
from penstock.server.partition_checks import check_epoch, find_or_raise
from penstock.server.pieces import Turns, partitions_once
from penstock.server.serving import Call, serves
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
    """The high watermark is not yet where an earlier leader may have shown it to be."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class Sight(NamedTuple):
    """What a request may see, of whatever partition it asks."""

    is_committed: bool
    is_in_touch: bool
    """Whether the cluster has heard of this broker lately; else it may not lead any more."""


@serves(ListOffsetsRequest)
async def list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """Answers partition by partition."""
    turns = Turns()
    sight = Sight(request.isolation_level == READ_COMMITTED, node_of(call).is_in_touch)
    entries = ((topic.name, each.partition_index, each) for topic in request.topics for each in topic.partitions)
    named = await partitions_once(entries, turns)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic,
                partitions=[
                    _failed(asked, ErrorCode.INVALID_REQUEST)
                    if (topic, asked.partition_index) in named.repeated
                    else await _answer(call, topic, asked, sight, turns)
                    async for asked in turns.through(found.values())
                ],
            )
            for topic, found in named.topics.items()
        ]
    )


async def _answer(
    call: Call, topic: str, asked: ListOffsetsPartition, sight: Sight, turns: Turns
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and call.version < FIRST_VERSION.get(asked.timestamp, 0x7FFF):
        return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = find_or_raise(node_of(call).partitions, topic, asked.partition_index)
        check_epoch(partition, asked.current_leader_epoch)
        timestamp_ms, offset, epoch = await _look_up(partition, asked.timestamp, sight, node_of(call).opener, turns)
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
    """That the high watermark is not one of yesterday."""
    if not sight.is_in_touch:
        raise OffsetNotAvailable("no controller has answered this broker lately, and others may lead by now")
    start_offset = max((begun.start_offset for begun in log.epochs), default=0)
    if start_offset > log.high_watermark:
        raise OffsetNotAvailable(f"high watermark {log.high_watermark} lags behind the epoch's start {start_offset}")


def _failed(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
