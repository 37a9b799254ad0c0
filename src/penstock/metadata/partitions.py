"""How the controller decides on partitions that exist: AlterPartition from their leaders, ElectLeaders from operators.

Answers   codes and sentences are Kafka 4.3's.
Departs   a leader must name the broker epoch of everybody in sync, for which AlterPartition 2 has no room: a replica
          that came back after losing records is not the one that was in sync (R08). It may leave itself out, as one
          does whose log has failed: then one of those that it names leads. An election of everything elects
          RECORDS_PER_COMMAND_MAX partitions; the rest is told THROTTLING_QUOTA_EXCEEDED: ask again.
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
from penstock.metadata.index import Placed
from penstock.metadata.partition_change import RECOVERING, Election, change_record, settle
from penstock.metadata.records import PartitionChangeRecord
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, Cluster
from penstock.model.epochs import EpochsExhausted, next_epoch
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision

# --- AlterPartition ---------------------------------------------------------------------------------------------------


def alter_partition(command: AlterPartition, cluster: Cluster) -> Decision[MetadataRecord, AlteredPartitions]:
    """A leader changes who is in sync."""
    broker = cluster.image.brokers.get(command.broker_id)
    if broker is None or broker.epoch != command.broker_epoch:
        return Decision((), AlteredPartitions(code=ErrorCode.STALE_BROKER_EPOCH))
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
    return Decision(tuple(records), AlteredPartitions(tuple(results)))


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
        # The end of a move may make somebody else the leader: the change is made, but not the asker's to go on with.
        ErrorCode.NONE if settled.leader == broker_id else ErrorCode.NEW_LEADER_ELECTED,
        settled.leader,
        settled.leader_epoch,
        settled.isr,
        settled.leader_recovery_state,
        partition.partition_epoch + (record is not None),
    )
    return [] if record is None else [record], result


def _outdated(wanted: NewIsr, cluster: Cluster) -> MetadataRecord:
    """The partition as it is, in its next version: what was refused is refused for good.

    The leader does not count on it any more. The same request, sent before and come late, must not be carried out when
    whoever it names is eligible again.
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
    """Only the leader of now may speak, and only of the partition as it is."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        raise Refusal(ErrorCode.NOT_CONTROLLER, None)  # it knows more: somebody else decides by now
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
    """Whether the leader leaves its place to others who are in sync: its log has failed."""
    return bool(isr) and frozenset(isr) <= frozenset(partition.isr)


# --- elections --------------------------------------------------------------------------------------------------------


def elect_leaders(command: ElectLeaders, cluster: Cluster) -> Decision[MetadataRecord, tuple[Elected, ...]]:
    """Operators ask for preferred leaders, or for any."""
    election = Election.UNCLEAN if command.is_unclean else Election.PREFERRED
    records: list[MetadataRecord] = []
    results = []
    active = cluster.active
    is_for_all = command.partitions is None
    for ref, placed in _asked(command, cluster):
        try:
            if len(records) == RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Too many elections at once; ask again.")
            records.append(_elect(ref, placed, election, active, cluster))
            results.append(Elected(ref))
        except Refusal as refusal:
            if not (is_for_all and refusal.code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append(Elected(ref, refusal.code, refusal.message))
    return Decision(tuple(records), tuple(results))


def _asked(command: ElectLeaders, cluster: Cluster) -> Iterator[tuple[PartitionRef, Placed | None]]:
    if command.partitions is None:
        found: Iterable[Placed] = cluster.index.leaderless
        if not command.is_unclean:
            found = (*cluster.index.leaderless, *cluster.index.astray)
        for placed in found:
            yield PartitionRef(placed.topic.name, placed.number), placed
        return
    for ref in dict.fromkeys(command.partitions):
        topic = cluster.image.topics.get(ref.topic)
        partition = None if topic is None else topic.partitions.get(ref.number)
        yield ref, None if topic is None or partition is None else Placed(topic, ref.number, partition)


def _elect(
    ref: PartitionRef, placed: Placed | None, election: Election, active: frozenset[int], cluster: Cluster
) -> MetadataRecord:
    if placed is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {ref.topic}-{ref.number}")
    partition = placed.partition
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
    record = change_record(placed.topic.topic_id, placed.number, partition, settled)
    if record is None:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED, None)
    return record
