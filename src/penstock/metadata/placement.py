"""Placement of the replicas of new partitions: spread evenly over brokers, and over racks if there are any.

Brokers form a ring in which racks alternate. A partition takes as many neighbours as it has replicas; the next
partition begins one position further on. Brokers in a rack that the partition already uses are skipped while there are
other racks (KIP-36): with racks of different sizes, rack spread goes before even load. The ring is shuffled after each
round, so that the load of a lost broker falls on many.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import Broker, Image, Partition
from penstock.metadata.records import PartitionRecord
from penstock.metadata.view import (
    REPLICAS_PER_COMMAND_MAX,
    REPLICAS_PER_PIECE,
    TOO_MANY_REPLICAS,
    Pieces,
    is_leaving,
)
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy

T = TypeVar("T")


def hosts(image: Image) -> dict[int, Broker]:
    """Brokers that may get replicas, without those that are being emptied."""
    return {number: broker for number, broker in image.brokers.items() if not is_leaving(image, number)}


def place(
    brokers: Mapping[int, Broker], count: int, replication_factor: int, entropy: Entropy
) -> Iterator[tuple[int, ...]]:
    """The replicas of `count` new partitions, the preferred leader first."""
    there = [broker for _, broker in sorted(brokers.items()) if not broker.is_fenced]
    usable = [broker for broker in there if broker.can_write] or there
    spare = [broker.broker_id for broker in there if broker not in usable]
    spare += [broker.broker_id for _, broker in sorted(brokers.items()) if broker.is_fenced]
    if not usable:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    racks = {broker.broker_id: broker.rack or "" for broker in usable}
    members: dict[str, list[int]] = {}
    for broker in usable:
        members.setdefault(racks[broker.broker_id], []).append(broker.broker_id)
    taken = min(replication_factor, len(usable))
    rest = tuple(spare[: replication_factor - taken])
    for first in range(0, count, len(usable)):
        ring = _ring(members, entropy)
        twice = (*ring, *ring)
        for start in range(min(len(ring), count - first)):
            if len(members) == 1:
                yield twice[start : start + taken] + rest
            else:
                yield (*_apart(twice[start : start + len(ring)], taken, racks, len(members)), *rest)


def _apart(ring: Sequence[int], count: int, racks: Mapping[int, str], turns: int) -> list[int]:
    """The first `count` brokers of the ring, skipping racks that had their turn while others have not."""
    taken: list[int] = []
    while len(taken) < count:
        had: dict[str, int] = {}
        for broker_id in ring:
            if racks[broker_id] not in had and broker_id not in taken:
                had[racks[broker_id]] = broker_id
            if len(had) == min(turns, count - len(taken)):
                break
        taken += had.values()
    return taken


def _ring(racks: Mapping[str, list[int]], entropy: Entropy) -> list[int]:
    rows = _shuffled([_shuffled(rack, entropy) for rack in racks.values()], entropy)
    if len(rows) == 1:
        return rows[0]
    return [broker_id for turn in zip_longest(*rows) for broker_id in turn if broker_id is not None]


def _shuffled(items: list[T], entropy: Entropy) -> list[T]:
    """Fisher-Yates shuffle."""
    items = items.copy()
    for index in range(len(items) - 1, 0, -1):
        other = entropy.below(index + 1)
        items[index], items[other] = items[other], items[index]
    return items


def check_assignment(replicas: tuple[int, ...], brokers: Mapping[int, Broker], replication_factor: int | None) -> None:
    """Refuses an invalid manual assignment."""
    if not replicas:
        raise _bad("The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    for index, broker_id in enumerate(ordered):
        if broker_id not in brokers:
            raise _bad(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if index and ordered[index - 1] == broker_id:
            raise _bad(f"The manual partition assignment includes the broker {broker_id} more than once.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def _bad(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _new_partition(replicas: tuple[int, ...], brokers: Mapping[int, Broker]) -> Partition | None:
    """A partition on these brokers, or None if none of them can lead it."""
    active = tuple(broker_id for broker_id in replicas if brokers[broker_id].is_active)
    isr = tuple(broker_id for broker_id in active if brokers[broker_id].can_write) or active
    if not isr:
        return None
    return Partition(
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(brokers[broker_id].default_directory for broker_id in replicas),
    )


def assign(index: int, replicas: tuple[int, ...], brokers: Mapping[int, Broker], factor: int | None) -> Partition:
    """A partition on manually assigned brokers."""
    check_assignment(replicas, brokers, factor)
    partition = _new_partition(replicas, brokers)
    if partition is None:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return partition


def place_all(
    count: int, replication_factor: int, brokers: Mapping[int, Broker], entropy: Entropy
) -> Pieces[list[Partition]]:
    """New partitions on brokers chosen by the placement."""
    found: dict[tuple[int, ...], Partition] = {}
    made: list[Partition] = []
    check_replicas(min(replication_factor, len(brokers)) * count)
    per_piece = max(1, REPLICAS_PER_PIECE // replication_factor)
    for replicas in place(brokers, count, replication_factor, entropy):
        if made and len(made) % per_piece == 0:
            yield
        partition = found.get(replicas) or _new_partition(replicas, brokers)
        if partition is None:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
        found[replicas] = partition  # equal partitions share one object
        made.append(partition)
    return made


def assign_all(
    assignments: Iterable[tuple[int, tuple[int, ...]]], brokers: Mapping[int, Broker], factor: int | None
) -> Pieces[dict[int, Partition]]:
    """New partitions on manually assigned brokers. Without a factor, the first partition determines it."""
    made: dict[int, Partition] = {}
    replica_count, piece = 0, 0
    for index, replicas in assignments:
        if index in made:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        made[index] = assign(index, replicas, brokers, factor)
        factor = len(replicas)
        replica_count += factor
        check_replicas(replica_count)
        if replica_count // REPLICAS_PER_PIECE > piece:
            piece = replica_count // REPLICAS_PER_PIECE
            yield
    return made


def check_replicas(count: int) -> None:
    """Refuses more new replicas of one topic than a node can apply at once."""
    if count > REPLICAS_PER_COMMAND_MAX:
        raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_REPLICAS)


def partition_records(topic_id: bytes, partitions: Iterable[Partition], first: int) -> Pieces[list[MetadataRecord]]:
    """The records that create partitions, numbered from `first` on."""
    records: list[MetadataRecord] = []
    for index, partition in enumerate(partitions, start=first):
        if records and len(records) % REPLICAS_PER_PIECE == 0:
            yield
        records.append(partition_record(topic_id, index, partition))
    return records


def partition_record(topic_id: bytes, index: int, partition: Partition) -> PartitionRecord:
    """The record that creates a partition."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )
