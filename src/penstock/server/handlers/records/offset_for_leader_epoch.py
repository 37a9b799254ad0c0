"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which a reader detects that its log has diverged.

Serves    OffsetForLeaderEpoch 2–4.
Answers   the largest epoch that is not above the requested one, and its end offset; -1 and -1 if it is unknown.
Departs   from Kafka 4.3: followers use Fetch for this (KIP-595); a partition that is named several times is answered
          once.
"""

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.server.loop.pieces import Turns, partitions_once
from penstock.server.partitions.partition_checks import check_epoch, find_or_raise
from penstock.server.partitions.partitions import Partitions
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpochHandler:
    """Answers where leader epochs ended in partitions that are led here."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    @serves(OffsetForLeaderEpochRequest)
    async def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, _call: Call
    ) -> OffsetForLeaderEpochResponse:
        """Answers partition by partition."""
        turns = Turns()
        entries = ((topic.topic, each.partition, each) for topic in request.topics for each in topic.partitions)
        asked = await partitions_once(entries, turns)
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                OffsetForLeaderTopicResult(
                    topic=name, partitions=[self._answer(name, each) async for each in turns.through(found.values())]
                )
                for name, found in asked.topics.items()
            ],
        )

    def _answer(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = find_or_raise(self._partitions, topic, asked.partition)
            check_epoch(partition, asked.current_leader_epoch)
        except ProtocolError as error:
            return EpochEndOffset(error_code=error.code, partition=asked.partition)
        epoch, end_offset = partition.log.epochs.end_of(asked.leader_epoch, partition.log.written_end)
        return EpochEndOffset(
            error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
        )
