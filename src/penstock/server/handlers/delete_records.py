"""DeleteRecords: everything before an offset goes.

Serves    DeleteRecords 0–2. Offset -1 is the high watermark.
Answers   the new start of the log once it is durable; an offset before the start changes nothing and is no error.
          POLICY_VIOLATION where clean-up is compaction alone, INVALID_TOPIC_EXCEPTION for internal topics.
Departs   from Kafka 4.3: with one replica there is nobody to wait for, so `timeout_ms` does not matter.
"""

from penstock.model.errors import ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.partition_checks import find_or_raise
from penstock.server.serving import Call, serves
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class InternalTopic(ProtocolError):
    """The topic belongs to the coordinators."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class CompactedOnly(ProtocolError):
    """The topic's clean-up policy does not delete."""

    code = ErrorCode.POLICY_VIOLATION


@serves(DeleteRecordsRequest)
async def delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """One partition after the other."""
    node = node_of(call)
    topics = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            code, low_watermark = ErrorCode.NONE, -1
            try:
                low_watermark = await _delete(node, topic.name, asked.partition_index, asked.offset)
            except ProtocolError as error:
                code = error.code
            except OSError:
                code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _delete(node: Needs, topic: str, index: int, offset: int) -> int:
    """The start of the log afterwards."""
    if topic in INTERNAL_TOPICS:
        raise InternalTopic(f"records of {topic} are deleted by their coordinator alone")
    partition = find_or_raise(node.partitions, topic, index)
    if not partition.can_delete:
        raise CompactedOnly(f"the clean-up policy of {topic} is compaction alone")
    log = partition.log
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRange(f"offset {offset} has no meaning")
    if offset > log.start_offset:
        await node.upkeep.delete_before(log, offset)
    return log.start_offset
