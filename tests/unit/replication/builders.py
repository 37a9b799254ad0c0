"""Images, logs and responses for tests of replication: one topic with any partitions and brokers."""

from typing import Any, NamedTuple

from penstock.metadata.draft import applied
from penstock.metadata.image import Broker, Image, Partition
from penstock.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.model.errors import ErrorCode
from penstock.replication.effects import Effect, SendFetch
from penstock.replication.leader import Leader, Neighbours
from penstock.replication.ports import Key
from penstock.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from tests.simulation.replication_core.disk import ModelLog, Records

TOPIC = "orders"
TOPIC_ID = b"t" * 16
LAG_MS = 1_000


def key(number: int = 0) -> Key:
    return TOPIC_ID, number


class Asked(NamedTuple):
    """The fields of a follower's fetch."""

    offset: int
    last_fetched_epoch: int = -1
    leader_epoch: int = 0
    log_start: int = 0


def a_log(*epochs: int, waits_for_sync: bool = False) -> ModelLog:
    """Builds a log with one record of each of these epochs, all synced."""
    log = ModelLog(waits_for_sync=waits_for_sync)
    for epoch in epochs:
        log.append(epoch, 100 + log.written_end)
    log.synced_end = log.written_end
    return log


def partition(
    *isr: int, leader: int = 1, epoch: int = 0, partition_epoch: int = 0, replicas: tuple[int, ...] = (1, 2, 3)
) -> Partition:
    return Partition(replicas, isr, leader, epoch, partition_epoch)


def neighbours(*broker_ids: int) -> Neighbours:
    """Returns brokers whose epochs are ten times their ids, each in its own rack."""
    found = Neighbours(LAG_MS)
    found.brokers = {each: Broker(each, 10 * each, bytes([each]) * 16, (), rack=f"rack {each}") for each in broker_ids}
    return found


def a_leader(
    log: ModelLog, part: Partition, in_sync_min: int = 1, around: Neighbours | None = None, now: int = 0
) -> Leader:
    return Leader((1, 10), key(), log, part, in_sync_min, around or neighbours(1, 2, 3), now)


# --- images -----------------------------------------------------------------------------------------------------------


def an_image(parts: dict[int, Partition], brokers: tuple[int, ...] = (1, 2, 3), in_sync_min: int = 1) -> Image:
    records: list[Any] = [
        RegisterBrokerRecord(
            broker_id=each,
            incarnation_id=bytes([each]) * 16,
            broker_epoch=10 * each,
            end_points=(),
            features=(),
            rack=None,
            fenced=False,
        )
        for each in brokers
    ]
    records.append(TopicRecord(name=TOPIC, topic_id=TOPIC_ID))
    records.append(
        ConfigRecord(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value=str(in_sync_min))
    )
    for number, each in parts.items():
        records.append(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC_ID,
                replicas=each.replicas,
                isr=each.isr,
                removing_replicas=(),
                adding_replicas=each.adding_replicas,
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
            )
        )
    return applied(Image(), records)


def changed(image: Image, number: int = 0, **changes: Any) -> Image:
    return applied(image, [PartitionChangeRecord(partition_id=number, topic_id=TOPIC_ID, **changes)])


def fenced(image: Image, broker_id: int, *, is_on: bool = True) -> Image:
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=10 * broker_id, fenced=1 if is_on else -1)
    return applied(image, [change])


# --- responses --------------------------------------------------------------------------------------------------------


def found(
    number: int = 0,
    *,
    log: ModelLog | None = None,
    offset: int = 0,
    high_watermark: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] = (-1, -1),
    log_start: int = 0,
) -> PartitionData:
    """Builds a partition of a fetch response, with records of `log` from an offset on."""
    records: Records | None = None if log is None else log.read(offset, 100)
    return PartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        aborted_transactions=None,
        records=records,  # type: ignore[arg-type]
    )


def an_answer(*parts: PartitionData, session_id: int = 7, error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)] if parts else []
    return FetchResponse(throttle_time_ms=0, error_code=error, session_id=session_id, responses=topics)


def the_fetch(effects: list[Effect]) -> SendFetch:
    fetches = [effect for effect in effects if isinstance(effect, SendFetch)]
    assert len(fetches) == 1, effects
    return fetches[0]


def named(fetch: SendFetch) -> dict[int, tuple[int, int, int]]:
    """Returns the partitions in a fetch: partition to offset, last fetched epoch, leader epoch."""
    return {
        each.partition: (each.fetch_offset, each.last_fetched_epoch, each.current_leader_epoch)
        for topic in fetch.request.topics
        for each in topic.partitions
    }
