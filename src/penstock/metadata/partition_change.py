"""State changes of a partition: ISR, eligible leader replicas (KIP-966), elections, the end of a move.

All functions are pure. Invariants of the result of `settle`: leader and ISR are among the replicas; a leader is in sync
and active; a replica that cannot write is in the ISR only with others that cannot; ISR and eligible replicas are
disjoint; with min.insync.replicas in sync no other replica is eligible; the leader epoch grows whenever the leader
changes or a replica is removed, so that outdated nodes are refused.
"""

from collections.abc import Container
from enum import Enum
from typing import Final, NamedTuple

from penstock.metadata.image import NO_LEADER, Partition
from penstock.metadata.records import PartitionChangeRecord
from penstock.model.epochs import next_epoch

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader was elected uncleanly and has not yet reported that it has recovered."""


class Election(Enum):
    """Kind of election: which replicas may be elected."""

    CLEAN = "whoever has every committed record, the present leader first"
    PREFERRED = "the same, but the first replica before all"
    UNCLEAN = "if nobody has, any active replica, whatever is lost"


class Rules(NamedTuple):
    """Rules that a topic sets for its partitions."""

    in_sync_min: int = 1
    has_eligible_replicas: bool = True
    """Whether the cluster keeps eligible leaders; if not, the last in-sync replica stays in the ISR when it fails."""
    is_unclean_allowed: bool = False

    @property
    def election(self) -> Election:
        """Kind of election that is used without an explicit request."""
        return Election.UNCLEAN if self.is_unclean_allowed else Election.CLEAN


def settle(
    before: Partition,
    wanted: Partition,
    active: Container[int],
    rules: Rules,
    election: Election | None = None,
    distrusted: Container[int] = (),
    unfit: Container[int] = (),
) -> Partition:
    """Computes the partition that results from `wanted`, where only `active` brokers may lead or be in sync.

    `distrusted` brokers may have lost records, so they are no longer eligible. `unfit` brokers cannot write now, and
    are treated as inactive unless that would empty the ISR: data that can still be read is not given up. Damaged
    replicas neither lead nor are in sync; one without a substitute stays eligible, though it is not elected.
    """
    if damaged := wanted.damaged:
        active = [each for each in wanted.replicas if each in active and each not in damaged]
    active = _willing(wanted, active, unfit)
    isr = tuple(each for each in wanted.isr if each in active)
    if not isr and not rules.has_eligible_replicas:
        isr = tuple(each for each in wanted.isr if each in wanted.replicas)
    if wanted.adding_replicas or wanted.removing_replicas:
        wanted, isr = _complete_move(wanted, isr, _eligible(before, wanted, isr, rules, distrusted)[0], rules)
    eligible, last_known = _eligible(before, wanted, isr, rules, distrusted)
    leader, isr, is_unclean = _elect(wanted, isr, (eligible, last_known), active, election or rules.election)
    if leader in eligible:
        eligible = tuple(each for each in eligible if each != leader)
        if len(isr) >= min(rules.in_sync_min, len(wanted.replicas)):
            eligible = last_known = ()
    has_lost_replicas = not frozenset(before.replicas) <= frozenset(wanted.replicas)
    has_new_epoch = leader != before.leader or has_lost_replicas
    return wanted._replace(
        isr=isr,
        leader=leader,
        leader_epoch=next_epoch(before.leader_epoch, "the partition") if has_new_epoch else before.leader_epoch,
        leader_recovery_state=RECOVERING if is_unclean else wanted.leader_recovery_state,
        eligible_leader_replicas=() if is_unclean else eligible,
        last_known_elr=() if is_unclean else last_known,
    )


def _willing(wanted: Partition, active: Container[int], unfit: Container[int]) -> Container[int]:
    if not unfit:
        return active
    fit = [each for each in wanted.replicas if each in active and each not in unfit]
    return fit if any(each in wanted.isr for each in fit) else active


def _complete_move(
    wanted: Partition, isr: tuple[int, ...], eligible: tuple[int, ...], rules: Rules
) -> tuple[Partition, tuple[int, ...]]:
    """Ends a move once all added replicas are in sync and enough of the staying ones have every record."""
    gone = wanted.removing_replicas
    staying = tuple(each for each in isr if each not in gone)
    whole = (*isr, *eligible)
    if (
        not staying
        or not frozenset(wanted.adding_replicas) <= frozenset(staying)
        or sum(each not in gone for each in whole) < whole_min(len(whole), len(wanted.replicas) - len(gone), rules)
    ):
        return wanted, isr
    return without_replicas(wanted, gone)._replace(adding_replicas=(), removing_replicas=()), staying


def whole_min(whole: int, target: int, rules: Rules) -> int:
    """Of `whole` replicas with every committed record, the number that a move to `target` replicas must keep.

    With min.insync.replicas of them, all but one may lose their data without any record being lost.
    """
    return min(whole, target, rules.in_sync_min)


def without_replicas(partition: Partition, gone: Container[int]) -> Partition:
    """The partition without some replicas and their directories."""
    if len(partition.directories) != len(partition.replicas):
        return partition._replace(replicas=tuple(each for each in partition.replicas if each not in gone))
    kept = [pair for pair in zip(partition.replicas, partition.directories, strict=True) if pair[0] not in gone]
    return partition._replace(
        replicas=tuple(replica for replica, _ in kept), directories=tuple(directory for _, directory in kept)
    )


def _eligible(
    before: Partition, wanted: Partition, isr: tuple[int, ...], rules: Rules, distrusted: Container[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The replicas outside the ISR that have every committed record, and the last ones known to have had them.

    With fewer than min.insync.replicas in sync nothing is committed, so replicas that were in sync when that began
    stay eligible.
    """
    if not rules.has_eligible_replicas or len(isr) >= min(rules.in_sync_min, len(wanted.replicas)):
        return (), ()
    known = (*before.isr, *before.eligible_leader_replicas)
    out = tuple(each for each in wanted.replicas if each not in isr)
    eligible = tuple(each for each in out if each in known and each not in distrusted)
    last_known = tuple(
        each for each in out if each not in eligible and (each in known or each in before.last_known_elr)
    )
    return eligible, last_known


def _elect(
    wanted: Partition,
    isr: tuple[int, ...],
    others: tuple[tuple[int, ...], tuple[int, ...]],
    active: Container[int],
    election: Election,
) -> tuple[int, tuple[int, ...], bool]:
    """The leader, the ISR under it, and whether records may be lost by the election."""
    eligible, last_known = others
    order = (wanted.leader, *wanted.replicas)
    if election is Election.PREFERRED:
        order = (wanted.replicas[0], *order)
    for each in order:
        if each in isr and each in active:
            return each, isr, False
    for each in eligible:
        if each in active:
            return each, (each,), False
    if election is Election.UNCLEAN:
        for each in (*last_known, *wanted.replicas):
            if each in active:
                return each, (each,), True
    return NO_LEADER, isr, False


def is_sound(partition: Partition, active: frozenset[int], unfit: frozenset[int]) -> bool:
    """Whether the leader is active and all of the ISR is active and fit: the usual case, with nothing to settle."""
    return partition.leader in active and active.issuperset(partition.isr) and unfit.isdisjoint(partition.isr)


def change_record(topic_id: bytes, index: int, old: Partition, new: Partition) -> PartitionChangeRecord | None:
    """The record that changes `old` into `new`; None if they are equal."""
    if old == new:
        return None
    next_epoch(old.partition_epoch, "the partition")  # refused here: a record in the log can no longer be refused
    same_leader = old.leader_epoch == new.leader_epoch
    same_state = old.leader_recovery_state == new.leader_recovery_state
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=None if old.isr == new.isr else new.isr,
        leader=-2 if same_leader else new.leader,
        replicas=None if old.replicas == new.replicas else new.replicas,
        removing_replicas=None if old.removing_replicas == new.removing_replicas else new.removing_replicas,
        adding_replicas=None if old.adding_replicas == new.adding_replicas else new.adding_replicas,
        leader_recovery_state=-1 if same_state else new.leader_recovery_state,
        directories=None if old.directories == new.directories else new.directories,
        eligible_leader_replicas=_if_new(old.eligible_leader_replicas, new.eligible_leader_replicas),
        last_known_elr=_if_new(old.last_known_elr, new.last_known_elr),
    )


def _if_new(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if old == new else new
