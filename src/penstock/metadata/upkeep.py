"""The active controller's own work, in order of urgency, one bounded piece per Tick.

    1. brokers whose session has expired are fenced, and other replicas lead their partitions
    2. partitions that must change because of changes of brokers are settled
    3. leadership returns to preferred replicas, when that check is due
    4. replicas move to balance the cluster; replicas that lead move one after another, because producers to a
       partition pause for a moment when its leader changes

Remaining work wakes the controller again at once; otherwise it wakes to check for expired sessions. The work follows
from the image and from heartbeats, so a new controller continues where the last one stopped.
"""

from penstock.metadata.balance import plan_moves
from penstock.metadata.brokers import fence
from penstock.metadata.cluster_commands import Ticked
from penstock.metadata.commands import Refusal
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.image import NO_LEADER
from penstock.metadata.index import PartitionEntry
from penstock.metadata.liveness import WAKE_MS, WakeAt
from penstock.metadata.partition_change import Election, change_record, settle
from penstock.metadata.reassignment import move_record, moved
from penstock.metadata.view import RECORDS_PER_STEP_MAX, Cluster
from penstock.model.shard import Decision, answer


class Pace:
    """Limits the rate at which replicas that lead begin to move: soft state, on the controller's clock."""

    def __init__(self) -> None:
        self._next_ms = 0
        self.has_waiting = False
        """Whether the last plan had moves that had to wait."""

    def is_due(self, running_ms: int) -> bool:
        """Whether a waiting move may begin."""
        return self.has_waiting and running_ms >= self._next_ms

    def takes(self, running_ms: int, interval_ms: int) -> bool:
        """Whether a move may begin now; if so, the next one waits for `interval_ms`."""
        if running_ms < min(self._next_ms, running_ms + interval_ms):
            self.has_waiting = True
            return False
        self._next_ms = running_ms + interval_ms
        return True


def tick(
    cluster: Cluster, now: int, pace: Pace, *, looks_for_preferred: bool, is_at_rest: bool = False
) -> Decision[MetadataRecord, Ticked]:
    """Decides the next piece of due work. At rest, only time and heartbeats can have made work due."""
    decision = _fence_silent(cluster, now) or (None if is_at_rest else _settle_troubled(cluster, now))
    if decision is not None:
        return decision
    if looks_for_preferred and (records := return_to_preferred(cluster)):
        return answer(tuple(records), Ticked(elected=len(records)), WakeAt(now))
    if not is_at_rest and (records := begin_moves(cluster, pace)):
        return answer(tuple(records), Ticked(moves_begun=len(records)), WakeAt(now + WAKE_MS))
    return answer((), Ticked(), WakeAt(now + WAKE_MS))


def _fence_silent(cluster: Cluster, now: int) -> Decision[MetadataRecord, Ticked] | None:
    for broker_id in cluster.liveness.expired(cluster.image, cluster.session_timeout_ms):
        step = fence(cluster.image.brokers[broker_id], cluster)
        return answer(tuple(step.records), Ticked(fenced=(broker_id,) if step.is_last else ()), WakeAt(now))
    return None


def _settle_troubled(cluster: Cluster, now: int) -> Decision[MetadataRecord, Ticked] | None:
    records: list[MetadataRecord] = []
    active = cluster.active
    for topic, number, partition in cluster.index.troubled(RECORDS_PER_STEP_MAX):
        settled = settle(partition, partition, active, cluster.rules(topic.name), unfit=cluster.unfit)
        record = change_record(topic.topic_id, number, partition, settled)
        if record is not None:
            records.append(record)
    return answer(tuple(records), Ticked(elected=len(records)), WakeAt(now)) if records else None


def return_to_preferred(cluster: Cluster) -> list[MetadataRecord]:
    """Returns leadership to first replicas that are in sync, for a bounded number of partitions."""
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
    """Begins the next moves, as many as may be in progress."""
    pace.has_waiting = False
    if not cluster.settings.is_on("auto.balance.enable"):
        return []
    per_broker_max = cluster.settings.number("reassignment.replicas.per.broker.max")
    interval_ms = cluster.settings.number("reassignment.leader.interval.ms")
    records: list[MetadataRecord] = []
    for entry, replicas in plan_moves(cluster.index, per_broker_max, RECORDS_PER_STEP_MAX):
        record = _move(entry, replicas, cluster)
        if record is None:
            continue
        changes_leader = entry.partition.leader not in (replicas[0], NO_LEADER)
        if not changes_leader or pace.takes(cluster.liveness.running_ms, interval_ms):
            records.append(record)
    return records


def _move(entry: PartitionEntry, replicas: tuple[int, ...], cluster: Cluster) -> MetadataRecord | None:
    target = moved(entry.partition, replicas)
    try:
        return move_record(entry.topic, entry.number, entry.partition, target, cluster)
    except Refusal:
        return None  # too few of the remaining replicas have every record; retried when more do
