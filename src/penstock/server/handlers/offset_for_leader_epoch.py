"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader sees whether its log has diverged.

Serves    OffsetForLeaderEpoch 2–4.
Answers   the largest epoch that is not larger than the one asked for, and its end; -1 and -1 when that is not known.
Departs   from Kafka 4.3: followers ask through Fetch (KIP-595); a partition that is named several times is answered
          once.
"""

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.partition_checks import check_epoch, find_or_raise
from penstock.server.pieces import Turns, partitions_once
from penstock.server.serving import Call, serves
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@serves(OffsetForLeaderEpochRequest)
async def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    """Answers partition by partition."""
    turns = Turns()
    entries = ((topic.topic, each.partition, each) for topic in request.topics for each in topic.partitions)
    asked = await partitions_once(entries, turns)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=name, partitions=[_answer(call, name, each) async for each in turns.through(found.values())]
            )
            for name, found in asked.topics.items()
        ],
    )


def _answer(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = find_or_raise(node_of(call).partitions, topic, asked.partition)
        check_epoch(partition, asked.current_leader_epoch)
    except ProtocolError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = partition.log.epochs.end_of(asked.leader_epoch, partition.log.written_end)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
