"""AlterPartition (key 56): a partition leader proposes a new ISR."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since, until
from penstock.wire.types import Int8, Int32, Int64, Uuid


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: Sequence[Int32] = until(2, default=())
    new_isr_with_epochs: Sequence[BrokerState] = since(3, default=())
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: Sequence[PartitionData]


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: Sequence[TopicData]


class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32
    error_code: ErrorCode
    leader_id: Int32
    leader_epoch: Int32
    isr: Sequence[Int32]
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid
    partitions: Sequence[AlterPartitionResponsePartitionData]


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    topics: Sequence[AlterPartitionResponseTopicData]
