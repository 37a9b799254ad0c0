"""Controller decisions on AssignReplicasToDirs: brokers report where their replicas lie, or that they are damaged.

A damaged replica (LOST_DIRECTORY) leaves the ISR and the eligible replicas as soon as another replica is in one of
them; if it leads, that other replica leads instead. The last replica that has every committed record is never removed:
it stays eligible, is not elected while it is damaged, and its broker keeps its log.

The leader epoch grows whenever a replica is reported as damaged. Its broker fetches the log again in the same broker
epoch, and a leader relies on no follower going back within one leader epoch and one broker epoch.

Answers   codes are Kafka 4.3's.
Departs   a damaged replica stays eligible if no other replica is in sync or eligible. Only LOST_DIRECTORY and
          directories that the broker has registered are accepted.
"""

from penstock.metadata.cluster_commands import Assigned, AssignedReplicas, AssignReplicas
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import LOST_DIRECTORY, MIGRATING_DIRECTORY, Broker, Partition
from penstock.metadata.partition_change import change_record, settle
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, Cluster
from penstock.model.epochs import EpochsExhausted, next_epoch
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer


def assign_replicas(command: AssignReplicas, cluster: Cluster) -> Decision[MetadataRecord, AssignedReplicas]:
    """Records the directories of a broker's replicas."""
    broker = cluster.image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return answer((), AssignedReplicas(code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[MetadataRecord] = []
    replies: list[Assigned] = []
    seen: set[tuple[bytes, int]] = set()
    for wanted in command.replicas:
        code = ErrorCode.NONE
        try:
            if (wanted.topic_id, wanted.index) in seen or len(records) == RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.INVALID_REQUEST, None)
            seen.add((wanted.topic_id, wanted.index))
            records += _assign(wanted, broker, cluster)
        except (Refusal, EpochsExhausted) as refusal:
            code = refusal.code
        replies.append(Assigned(wanted.directory, wanted.topic_id, wanted.index, code))
    return answer(tuple(records), AssignedReplicas(tuple(replies)))


def _assign(wanted: Assigned, broker: Broker, cluster: Cluster) -> list[MetadataRecord]:
    topic = cluster.image.topic_by_id(wanted.topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, None)
    partition = topic.partitions.get(wanted.index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    broker_id, is_damaged = broker.broker_id, wanted.directory == LOST_DIRECTORY
    if broker_id not in partition.replicas:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    if not is_damaged and wanted.directory not in broker.log_dirs:
        raise Refusal(ErrorCode.INVALID_REQUEST, None)
    if is_damaged and broker_id in partition.damaged:
        return []
    target = _placed(partition, broker_id, wanted.directory)
    others = frozenset((*partition.isr, *partition.eligible_leader_replicas)) - {broker_id}
    distrusted = (broker_id,) if is_damaged and others else ()
    rules = cluster.rules(topic.name)
    settled = settle(partition, target, cluster.active, rules, distrusted=distrusted, unfit=cluster.unfit)
    if is_damaged:
        settled = settled._replace(leader_epoch=next_epoch(partition.leader_epoch, "the partition"))
    record = change_record(wanted.topic_id, wanted.index, partition, settled)
    return [] if record is None else [record]


def _placed(partition: Partition, broker_id: int, directory: bytes) -> Partition:
    known = partition.directories
    if len(known) != len(partition.replicas):
        known = (MIGRATING_DIRECTORY,) * len(partition.replicas)
    pairs = zip(partition.replicas, known, strict=True)
    return partition._replace(directories=tuple(directory if each == broker_id else old for each, old in pairs))
