"""Controller decisions on existing partitions: AlterPartition from their leaders, ElectLeaders from operators.

Answers   codes and messages are Kafka 4.3's.
Departs   a leader must name the broker epoch of every in-sync replica, which AlterPartition 2 cannot carry: a replica
          that came back after losing records is not the one that was in sync (R08). A leader whose log has failed may
          leave itself out; then one of the replicas that it names leads. An election of all partitions elects
          RECORDS_PER_COMMAND_MAX of them; the rest get THROTTLING_QUOTA_EXCEEDED, and the request is to be repeated.
"""

from collections.abc import Iterable, Iterator

from penstock.metadata.cluster_commands import (
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    Elected,
    ElectLeaders,
    NewIsr,
    PartitionRef,
)
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import NO_LEADER, Partition, Topic
from penstock.metadata.index import PartitionEntry
from penstock.metadata.partition_change import RECOVERING, Election, change_record, settle
from penstock.metadata.records import PartitionChangeRecord
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, Cluster
from penstock.model.epochs import EpochsExhausted, next_epoch
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer

# --- AlterPartition ---------------------------------------------------------------------------------------------------


def alter_partition(command: AlterPartition, cluster: Cluster) -> Decision[MetadataRecord, AlteredPartitions]:
    """Changes the ISR of partitions as proposed by their leader."""
    broker = cluster.image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return answer((), AlteredPartitions(code=ErrorCode.STALE_BROKER_EPOCH))
    active = cluster.active
    records: list[MetadataRecord] = []
    results = []
    seen: set[tuple[bytes, int]] = set()
    for wanted in command.partitions:
        try:
            if (wanted.topic_id, wanted.index) in seen or len(records) == RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.INVALID_REQUEST, None)
            seen.add((wanted.topic_id, wanted.index))
            record, result = _alter(wanted, command.broker_id, cluster, active)
            records += record
        except EpochsExhausted as refusal:
            result = AlteredPartition(wanted.topic_id, wanted.index, refusal.code)
        except Refusal as refusal:
            result = AlteredPartition(wanted.topic_id, wanted.index, refusal.code)
            if refusal.code is ErrorCode.INELIGIBLE_REPLICA:
                records.append(_outdated(wanted, cluster))
        results.append(result)
    return answer(tuple(records), AlteredPartitions(tuple(results)))


def _alter(
    wanted: NewIsr, broker_id: int, cluster: Cluster, active: frozenset[int]
) -> tuple[list[MetadataRecord], AlteredPartition]:
    topic, partition = _found(wanted, cluster)
    _check_sender(wanted, partition, broker_id)
    isr = _checked_isr(wanted, partition, cluster, active)
    target = partition._replace(isr=isr, leader_recovery_state=wanted.leader_recovery_state)
    settled = settle(partition, target, active, cluster.rules(topic.name), unfit=cluster.unfit)
    record = change_record(wanted.topic_id, wanted.index, partition, settled)
    result = AlteredPartition(
        wanted.topic_id,
        wanted.index,
        # The end of a move may change the leader: the change is made, but the sender does not lead any more.
        ErrorCode.NONE if settled.leader == broker_id else ErrorCode.NEW_LEADER_ELECTED,
        settled.leader,
        settled.leader_epoch,
        settled.isr,
        settled.leader_recovery_state,
        partition.partition_epoch + (record is not None),
    )
    return [] if record is None else [record], result


def _outdated(wanted: NewIsr, cluster: Cluster) -> MetadataRecord:
    """Record that only increases the partition epoch, so that a refused request stays refused.

    The leader has given up on it. A delayed copy of the same request must not be carried out when the replicas that it
    names are eligible again.
    """
    _, partition = _found(wanted, cluster)
    next_epoch(partition.partition_epoch, "the partition")
    return PartitionChangeRecord(partition_id=wanted.index, topic_id=wanted.topic_id, isr=partition.isr)


def _found(wanted: NewIsr, cluster: Cluster) -> tuple[Topic, Partition]:
    topic = cluster.image.topic_by_id(wanted.topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, None)
    partition = topic.partitions.get(wanted.index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    return topic, partition


def _check_sender(wanted: NewIsr, partition: Partition, broker_id: int) -> None:
    """Accepts only the current leader, and only with the current partition epoch."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise Refusal(ErrorCode.NOT_CONTROLLER, None)  # the sender has newer state: another controller is active
    if wanted.leader_epoch < partition.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH, None)
    if broker_id != partition.leader:
        raise Refusal(ErrorCode.INVALID_REQUEST, None)
    if wanted.partition_epoch < partition.partition_epoch:
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION, None)


def _checked_isr(wanted: NewIsr, partition: Partition, cluster: Cluster, active: frozenset[int]) -> tuple[int, ...]:
    isr = tuple(broker_id for broker_id, _ in wanted.isr)
    is_list = len(frozenset(isr)) == len(isr) and frozenset(isr) <= frozenset(partition.replicas)
    if not is_list or not (partition.leader in isr or _is_given_up(isr, partition)):
        raise Refusal(ErrorCode.INVALID_REQUEST, None)
    is_recovering = wanted.leader_recovery_state == RECOVERING
    if is_recovering and (len(isr) > 1 or partition.leader_recovery_state != RECOVERING):
        raise Refusal(ErrorCode.INVALID_REQUEST, None)
    for broker_id, epoch in wanted.isr:
        broker = cluster.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or broker_id not in active:
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA, None)
        if broker_id not in partition.isr and not (broker.can_write and broker_id not in partition.damaged):
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA, None)
    return isr


def _is_given_up(isr: tuple[int, ...], partition: Partition) -> bool:
    """Whether the leader, whose log has failed, hands over to other in-sync replicas."""
    return bool(isr) and frozenset(isr) <= frozenset(partition.isr)


# --- elections --------------------------------------------------------------------------------------------------------


def elect_leaders(command: ElectLeaders, cluster: Cluster) -> Decision[MetadataRecord, tuple[Elected, ...]]:
    """Elects preferred leaders or, if unclean, any leaders."""
    election = Election.UNCLEAN if command.is_unclean else Election.PREFERRED
    records: list[MetadataRecord] = []
    results = []
    active = cluster.active
    is_for_all = command.partitions is None
    for ref, entry in _asked(command, cluster):
        try:
            if len(records) == RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Too many elections at once; ask again.")
            records.append(_elect(ref, entry, election, active, cluster))
            results.append(Elected(ref))
        except Refusal as refusal:
            if not (is_for_all and refusal.code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append(Elected(ref, refusal.code, refusal.message))
    return answer(tuple(records), tuple(results))


def _asked(command: ElectLeaders, cluster: Cluster) -> Iterator[tuple[PartitionRef, PartitionEntry | None]]:
    if command.partitions is None:
        found: Iterable[PartitionEntry] = cluster.index.leaderless
        if not command.is_unclean:
            found = (*cluster.index.leaderless, *cluster.index.astray)
        for entry in found:
            yield PartitionRef(entry.topic.name, entry.number), entry
        return
    for ref in dict.fromkeys(command.partitions):
        topic = cluster.image.topics.get(ref.topic)
        partition = None if topic is None else topic.partitions.get(ref.number)
        yield ref, None if topic is None or partition is None else PartitionEntry(topic, ref.number, partition)


def _elect(
    ref: PartitionRef, entry: PartitionEntry | None, election: Election, active: frozenset[int], cluster: Cluster
) -> MetadataRecord:
    if entry is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {ref.topic}-{ref.number}")
    partition = entry.partition
    if election is Election.PREFERRED and partition.leader == partition.replicas[0]:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, None)
    if election is Election.UNCLEAN and partition.leader != NO_LEADER:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, None)
    settled = settle(partition, partition, active, cluster.rules(ref.topic), election, unfit=cluster.unfit)
    if election is Election.PREFERRED and settled.leader != partition.replicas[0]:
        message = "The preferred leader was not available."
        raise Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    if settled.leader == NO_LEADER:
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "There is no replica that could lead.")
    record = change_record(entry.topic.topic_id, entry.number, partition, settled)
    if record is None:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, None)
    return record
