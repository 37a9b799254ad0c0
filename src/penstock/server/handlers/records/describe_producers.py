"""DescribeProducers: the active producers of partitions.

Serves    DescribeProducers 0.
Answers   every producer whose state the log holds, with the start offset of its open transaction if it has one.
Departs   from Kafka 4.3: a partition that is named several times is answered once. A response holds at most 50,000
          producers (PRODUCERS_TOLD_MAX); partitions whose producers do not fit are POLICY_VIOLATION.
"""

from typing import Final

from penstock.log.producers import Producer
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.server.loop.pieces import TOO_LARGE, Turns, cut, partitions_once
from penstock.server.partitions.partition_checks import find_or_raise
from penstock.server.partitions.partitions import Partitions
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PRODUCERS_TOLD_MAX: Final = 50_000
"""Producers in one response; each takes about 250 bytes of memory."""
PRODUCERS_AT_ONCE: Final = 1_000
"""Producers that are described without a turn for other tasks."""


class DescribeProducersHandler:
    """Describes the producers of partitions that are led here."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    @serves(DescribeProducersRequest)
    async def describe_producers(self, request: DescribeProducersRequest, _call: Call) -> DescribeProducersResponse:
        """Answers partition by partition."""
        turns, left = Turns(), PRODUCERS_TOLD_MAX
        entries = ((topic.name, index, None) for topic in request.topics for index in topic.partition_indexes)
        asked = await partitions_once(entries, turns)
        topics = []
        for name, indexes in asked.topics.items():
            answers = []
            for index in indexes:
                await turns.after()
                answers.append(await self._answer(name, index, left, turns))
                left -= len(answers[-1].active_producers)
            topics.append(TopicResponse(name=name, partitions=answers))
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    async def _answer(self, topic: str, index: int, most: int, turns: Turns) -> PartitionResponse:
        """Describes one partition, if it has at most `most` producers."""
        try:
            partition = find_or_raise(self._partitions, topic, index)
        except ProtocolError as error:
            return PartitionResponse(
                partition_index=index, error_code=error.code, error_message=str(error), active_producers=()
            )
        producers = partition.log.producers.producers
        if len(producers) > most:
            return PartitionResponse(
                partition_index=index,
                error_code=ErrorCode.POLICY_VIOLATION,
                error_message=TOO_LARGE,
                active_producers=(),
            )
        states: list[ProducerState] = []
        for part in cut(list(producers.items()), PRODUCERS_AT_ONCE):
            await turns.after(1 + len(part) // 4)
            states += [_state(producer_id, producer) for producer_id, producer in part]
        return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=states)


def _state(producer_id: int, producer: Producer) -> ProducerState:
    last = producer.seen[-1] if producer.seen else None
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=-1 if last is None else last.last_sequence,
        last_timestamp=-1 if last is None else last.timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=-1 if producer.transaction_start is None else producer.transaction_start,
    )
