"""DescribeProducers: the producers that are active on partitions.

Serves    DescribeProducers 0.
Answers   every producer that the log remembers, with the start of its open transaction if it has one.
Departs   nowhere from Kafka 4.3.
"""

from penstock.log.producers import Producer
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.partition_checks import find_or_raise
from penstock.server.serving import Call, serves
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@serves(DescribeProducersRequest)
async def describe_producers(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    """Answers partition by partition."""
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_answer(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ],
    )


def _answer(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        partition = find_or_raise(node_of(call).partitions, topic, index)
    except ProtocolError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=str(error), active_producers=()
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            _state(producer_id, producer) for producer_id, producer in partition.log.producers.producers.items()
        ],
    )


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
