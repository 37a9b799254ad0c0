"""What an active controller does by itself, in order of urgency, one bounded piece per Tick.

    1. brokers whose session is over are fenced, and what they led is led by others
    2. partitions that must change because of what brokers did are settled
    3. leadership returns to preferred replicas, when it is time to look for that
    4. replicas move to where they should lie; those that lead one after the other, because clients that write to a
       partition stand still for a moment when another broker leads it

Whatever is left wakes the controller again at once; otherwise it wakes to see whether sessions are over. What is to be
done follows from the image and from who was heard, so a controller that takes over goes on where the last one stopped.
"""

from penstock.metadata.balance import plan_moves
from penstock.metadata.brokers import fence
from penstock.metadata.cluster_commands import Ticked
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import NO_LEADER
from penstock.metadata.index import Placed
from penstock.metadata.liveness import WAKE_MS
from penstock.metadata.partition_change import Election, change_record, settle
from penstock.metadata.reassignment import move_record, moved
from penstock.metadata.view import RECORDS_PER_STEP_MAX, Cluster
from penstock.model.shard import Decision


class Pace:
    """When the next replica that leads may begin to move: soft, on the clock of the controller."""

    def __init__(self) -> None:
        self._next_ms = 0
        self.has_waiting = False
        """Whether the last plan had moves whose turn had not come."""

    def is_due(self, running_ms: int) -> bool:
        """Whether the turn of one that waits has come."""
        return self.has_waiting and running_ms >= self._next_ms

    def takes(self, running_ms: int, interval_ms: int) -> bool:
        """Whether it may be now; if so, the next one has to wait."""
        if running_ms < min(self._next_ms, running_ms + interval_ms):
            self.has_waiting = True
            return False
        self._next_ms = running_ms + interval_ms
        return True


def tick(
    cluster: Cluster, now: int, pace: Pace, *, looks_for_preferred: bool, is_at_rest: bool = False
) -> Decision[MetadataRecord, Ticked]:
    """The next piece of what is due. At rest nothing but time and heartbeats can have made anything due."""
    decision = _fence_silent(cluster, now) or (None if is_at_rest else _settle_troubled(cluster, now))
    if decision is not None:
        return decision
    if looks_for_preferred and (records := return_to_preferred(cluster)):
        return Decision(tuple(records), Ticked(elected=len(records)), wake_at=now)
    if not is_at_rest and (records := begin_moves(cluster, pace)):
        return Decision(tuple(records), Ticked(moves_begun=len(records)), wake_at=now + WAKE_MS)
    return Decision((), Ticked(), wake_at=now + WAKE_MS)


def _fence_silent(cluster: Cluster, now: int) -> Decision[MetadataRecord, Ticked] | None:
    for broker_id in cluster.liveness.expired(cluster.image, cluster.session_timeout_ms):
        step = fence(cluster.image.brokers[broker_id], cluster)
        return Decision(tuple(step.records), Ticked(fenced=(broker_id,) if step.is_last else ()), wake_at=now)
    return None


def _settle_troubled(cluster: Cluster, now: int) -> Decision[MetadataRecord, Ticked] | None:
    records: list[MetadataRecord] = []
    active = cluster.active
    for topic, number, partition in cluster.index.troubled(RECORDS_PER_STEP_MAX):
        settled = settle(partition, partition, active, cluster.rules(topic.name), unfit=cluster.unfit)
        record = change_record(topic.topic_id, number, partition, settled)
        if record is not None:
            records.append(record)
    return Decision(tuple(records), Ticked(elected=len(records)), wake_at=now) if records else None


def return_to_preferred(cluster: Cluster) -> list[MetadataRecord]:
    """Leadership goes to first replicas that are in sync: a bounded number."""
    records: list[MetadataRecord] = []
    active = cluster.active
    for topic, number, partition in cluster.index.returnable(RECORDS_PER_STEP_MAX):
        rules = cluster.rules(topic.name)
        settled = settle(partition, partition, active, rules, Election.PREFERRED, unfit=cluster.unfit)
        record = change_record(topic.topic_id, number, partition, settled)
        if record is not None:
            records.append(record)
    return records


def begin_moves(cluster: Cluster, pace: Pace) -> list[MetadataRecord]:
    """The next moves, as many as may be under way."""
    pace.has_waiting = False
    if not cluster.settings.is_on("auto.balance.enable"):
        return []
    per_broker_max = cluster.settings.number("reassignment.replicas.per.broker.max")
    interval_ms = cluster.settings.number("reassignment.leader.interval.ms")
    records: list[MetadataRecord] = []
    for placed, replicas in plan_moves(cluster.index, per_broker_max, RECORDS_PER_STEP_MAX):
        record = _move(placed, replicas, cluster)
        if record is None:
            continue
        changes_leader = placed.partition.leader not in (replicas[0], NO_LEADER)
        if not changes_leader or pace.takes(cluster.liveness.running_ms, interval_ms):
            records.append(record)
    return records


def _move(placed: Placed, replicas: tuple[int, ...], cluster: Cluster) -> MetadataRecord | None:
    target = moved(placed.partition, replicas)
    try:
        return move_record(placed.topic, placed.number, placed.partition, target, cluster)
    except Refusal:
        return None  # too few who would be left have every record; it is tried again when more have
