"""Controller decisions on moves: AlterPartitionReassignments and ListPartitionReassignments.

A moving partition lists its target replicas first, then those to be removed. The new ones are `adding_replicas`; when
all of them are in sync, `settle` ends the move.

Answers   codes and messages are Kafka 4.3's.
Departs   a move that replaces another starts from the replicas before the first one; a replica that was being added
          and is still a target stays in `adding_replicas`, where Kafka would treat it as an original replica. A move
          ends, or is cancelled, only if that leaves min.insync.replicas replicas that have every record. The number of
          replicas copied at a time and their rate are bounded at the receiving broker (`penstock.metadata.copying`);
          this bound ends with the move.
"""

from collections.abc import Iterable, Mapping

from penstock.metadata.cluster_commands import (
    AlterReassignments,
    ListReassignments,
    Moving,
    PartitionRef,
    Reassigned,
    Reassignment,
)
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Broker, Partition, Topic
from penstock.metadata.index import PartitionEntry
from penstock.metadata.partition_change import Rules, change_record, settle, whole_min
from penstock.metadata.placement import check_assignment
from penstock.metadata.view import RECORDS_PER_COMMAND_MAX, TOO_MANY_RECORDS, Cluster
from penstock.model.errors import ErrorCode
from penstock.model.shard import Decision, answer


def alter_reassignments(
    command: AlterReassignments, cluster: Cluster
) -> Decision[MetadataRecord, tuple[Reassigned, ...]]:
    """Starts, changes or cancels moves, each partition independently."""
    records: list[MetadataRecord] = []
    results = []
    seen: set[PartitionRef] = set()
    for each in command.reassignments:
        try:
            if each.partition in seen:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each partition must appear at most once.")
            seen.add(each.partition)
            if len(records) == RECORDS_PER_COMMAND_MAX:
                raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
            topic, partition = _found(each.partition, cluster)
            target = _cancelled(each, partition) if each.replicas is None else _moved(command, each, partition, cluster)
            record = move_record(topic, each.partition.number, partition, target, cluster)
            records += [] if record is None else [record]
            results.append(Reassigned(each.partition))
        except Refusal as refusal:
            results.append(Reassigned(each.partition, refusal.code, refusal.message))
    return answer(tuple(records), tuple(results))


def _found(ref: PartitionRef, cluster: Cluster) -> tuple[Topic, Partition]:
    topic = cluster.image.topics.get(ref.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {ref.topic}.")
    partition = topic.partitions.get(ref.number)
    if partition is None:
        message = f"Unable to find partition {ref.topic}:{ref.number}."
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return topic, partition


def _cancelled(each: Reassignment, partition: Partition) -> Partition:
    if not partition.adding_replicas and not partition.removing_replicas:
        raise Refusal(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"No reassignment of {each.partition.topic} is in progress."
        )
    return partition._replace(replicas=original_replicas(partition), adding_replicas=(), removing_replicas=())


def _moved(command: AlterReassignments, each: Reassignment, partition: Partition, cluster: Cluster) -> Partition:
    assert each.replicas is not None
    factor = None if command.allows_other_factor else len(original_replicas(partition))
    check_assignment(each.replicas, cluster.image.brokers, factor)
    return moved(partition, each.replicas)


def original_replicas(partition: Partition) -> tuple[int, ...]:
    """Replicas of the partition before the move in progress."""
    return tuple(each for each in partition.replicas if each not in partition.adding_replicas)


def target_replicas(partition: Partition) -> tuple[int, ...]:
    """Replicas of the partition after the move in progress."""
    return tuple(each for each in partition.replicas if each not in partition.removing_replicas)


def moved(partition: Partition, target: tuple[int, ...]) -> Partition:
    """The partition at the start of a move to `target`."""
    original = original_replicas(partition)
    adding = tuple(each for each in target if each not in original)
    removing = tuple(each for each in original if each not in target)
    return partition._replace(replicas=(*target, *removing), adding_replicas=adding, removing_replicas=removing)


def move_record(
    topic: Topic, index: int, partition: Partition, target: Partition, cluster: Cluster
) -> MetadataRecord | None:
    """The record that begins, changes or ends a move; None if nothing changes."""
    isr = tuple(each for each in partition.isr if each in target.replicas)
    rules = cluster.rules(topic.name)
    if not rules.is_unclean_allowed:
        _check_who_is_left(partition, target, isr, rules, f"{topic.name}-{index}")
    target = _with_directories(target._replace(isr=isr), partition, cluster.image.brokers)
    settled = settle(partition, target, cluster.active, rules, unfit=cluster.unfit)
    return change_record(topic.topic_id, index, partition, settled)


def _check_who_is_left(old: Partition, target: Partition, isr: tuple[int, ...], rules: Rules, name: str) -> None:
    """Refuses a target without an in-sync replica, or with too few replicas that have every record."""
    whole = (*old.isr, *old.eligible_leader_replicas)
    left = sum(each in target.replicas for each in whole)
    needed = whole_min(len(whole), len(target_replicas(target)), rules)
    why = None
    if old.isr and not isr:
        why = "none of those that would be left is in sync. Wait until one of them is."
    elif left < needed:
        why = (
            f"of those that would be left {left} are sure to have every record, and {needed} are needed. "
            "Wait until more of them are in sync."
        )
    if why is not None:
        message = f"Unable to change the replicas of {name}: {why}"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _with_directories(target: Partition, old: Partition, brokers: Mapping[int, Broker]) -> Partition:
    """Keeps the directories of existing replicas; new ones get the default directory of their broker."""
    if len(old.directories) != len(old.replicas):
        return target
    known = dict(zip(old.replicas, old.directories, strict=True))
    return target._replace(
        directories=tuple(known[each] if each in known else brokers[each].default_directory for each in target.replicas)
    )


# --- listing ----------------------------------------------------------------------------------------------------------


def list_reassignments(command: ListReassignments, cluster: Cluster) -> Decision[MetadataRecord, tuple[Moving, ...]]:
    """Lists partitions that are being moved."""
    found: Iterable[PartitionEntry] = cluster.index.moving
    if command.partitions is not None:
        wanted = frozenset(command.partitions)
        found = [each for each in found if PartitionRef(each.topic.name, each.number) in wanted]
    return answer(
        (),
        tuple(
            Moving(
                PartitionRef(each.topic.name, each.number),
                each.partition.replicas,
                each.partition.adding_replicas,
                each.partition.removing_replicas,
            )
            for each in found
        ),
    )
