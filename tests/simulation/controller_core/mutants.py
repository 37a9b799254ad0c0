"""The controller with one rule removed at a time: `python -m tests.simulation.controller_core.mutants --help`."""

import sys
from collections.abc import Container
from dataclasses import replace
from typing import Any

import pytest

from penstock.metadata import balance, brokers, configs, controller, partition_change, partitions, reassignment, upkeep
from penstock.metadata.brokers import Step
from penstock.metadata.cluster_commands import NewIsr
from penstock.metadata.commands import AllocateProducerIds, RegisterBroker
from penstock.metadata.draft import APPLY, Draft
from penstock.metadata.image import Broker, Image, Partition
from penstock.metadata.index import PartitionIndex
from penstock.metadata.liveness import Liveness, Session
from penstock.metadata.partition_change import Election, Rules
from penstock.metadata.records import PartitionChangeRecord
from penstock.metadata.view import Cluster
from penstock.model.shard import Decision, answer
from tests.simulation.controller_core.faults import run_seed
from tests.simulation.kit.mutants import Measured, Mutants

MUTANTS = Mutants("controller", run_seed, seeds_max=300)
caught_by = MUTANTS.caught_by
LOSSES = ("LeaderCompleteness", "LeaderCandidateCompleteness", "StrongIsr", "ConsistentRead", "Durability")


# --- brokers ----------------------------------------------------------------------------------------------------------


@caught_by("LiveBrokersStay")
def counts_time_in_which_it_stood_still(patch: pytest.MonkeyPatch) -> None:
    """R34: a stall of some seconds counts as silence of the brokers."""
    patch.setattr("penstock.metadata.liveness.GAP_MS_MAX", 1 << 40)


@caught_by("LiveBrokersStay")
def judges_before_it_has_listened(patch: pytest.MonkeyPatch) -> None:
    """R34: after a stall the timer comes first, and the waiting heartbeats come too late."""
    time_passes = Liveness.time_passes

    def hastily(self: Liveness, now: int) -> None:
        time_passes(self, now)
        self._judges_at_ms = 0

    patch.setattr(Liveness, "time_passes", hastily)


@caught_by("LiveBrokersStay")
def begins_with_the_sessions_of_somebody_else(patch: pytest.MonkeyPatch) -> None:
    """R34: a controller that was just elected has received no heartbeat."""

    def begin(self: Liveness, image: Image, now: int) -> None:
        self._now = now
        self.is_active = True
        self._sessions = {number: Session(broker.epoch, -(1 << 40)) for number, broker in image.brokers.items()}

    patch.setattr(Liveness, "begin", begin)


@caught_by("ValidControllerState", "LeaderInIsr")
def fences_before_partitions_are_handed_over(patch: pytest.MonkeyPatch) -> None:
    def fence(broker: Broker, _cluster: Cluster) -> Step:
        return Step([brokers._change(broker, fenced=1)], is_last=True)

    patch.setattr(brokers, "fence", fence)
    patch.setattr(upkeep, "fence", fence)


@caught_by("WritersFirst")
def forgets_who_cannot_write(patch: pytest.MonkeyPatch) -> None:
    """A broker with a full disk stays in the ISR with others, and may become leader again."""
    patch.setattr(partition_change, "_willing", lambda _wanted, active, _unfit: active)


@caught_by("SilentBrokersGo")
def never_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Liveness, "expired", lambda *_: [])


@caught_by(*LOSSES)
def trusts_who_lost_records(patch: pytest.MonkeyPatch) -> None:
    """R10: the last replica standing comes back without its records."""
    register = brokers.register_broker

    def trusts(command: RegisterBroker, cluster: Cluster) -> Decision[Any, Any]:
        known = cluster.image.brokers.get(command.broker_id)
        return register(replace(command, previous_epoch=known.active_epoch if known else -1), cluster)

    patch.setitem(controller._OF_CLUSTER, RegisterBroker, trusts)


@caught_by("MonotonicBrokerEpoch", "Convergence")
def gives_epochs_that_are_not_offsets(patch: pytest.MonkeyPatch) -> None:
    register = brokers.register_broker

    def counts(command: RegisterBroker, cluster: Cluster) -> Decision[Any, Any]:
        return register(replace(command, epoch=1_000_000 - command.epoch), cluster)

    patch.setitem(controller._OF_CLUSTER, RegisterBroker, counts)


@caught_by("StopsLeadingNothing")
def lets_a_broker_stop_before_the_others_know(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Liveness, "least_offset", lambda *_: 1 << 62)


# --- ISR and ELR ------------------------------------------------------------------------------------------------------


@caught_by("ValidControllerState", "LeaderInIsr", *LOSSES)
def takes_anybody_into_sync(patch: pytest.MonkeyPatch) -> None:
    """R07, R08: fenced ones, ones that shut down, ones of an earlier life."""
    plain = partition_change.settle

    def believes(wanted: NewIsr, *_: Any) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in wanted.isr)

    def keeps(before: Partition, wanted: Partition, active: Container[int], *rest: Any, **more: Any) -> Partition:
        if wanted.isr != before.isr and set(wanted.isr) > set(before.isr):
            active = frozenset((*wanted.isr, *active))  # type: ignore[misc]
        return plain(before, wanted, active, *rest, **more)

    patch.setattr(partitions, "_checked_isr", believes)
    patch.setattr(partitions, "settle", keeps)


@caught_by(*LOSSES)
def believes_whoever_says_to_lead(patch: pytest.MonkeyPatch) -> None:
    """R09: neither epochs nor the sender are checked."""
    patch.setattr(partitions, "_check_sender", lambda *_: None)


@caught_by("ValidControllerIsrAndElr")
def keeps_the_eligible_when_enough_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    eligible = partition_change._eligible

    def keeps(before: Partition, wanted: Partition, isr: tuple[int, ...], rules: Rules, distrusted: Any) -> Any:
        return eligible(before, wanted, isr, rules._replace(in_sync_min=99), distrusted)

    patch.setattr(partition_change, "_eligible", keeps)


@caught_by("ValidControllerIsrAndElr", *LOSSES)
def forgets_nobody_when_the_minimum_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configs, "_cleared", lambda *_: [])


@caught_by("Convergence")
def forgets_who_was_eligible(patch: pytest.MonkeyPatch) -> None:
    """As if there were no KIP-966 at all, but with an empty ISR."""
    patch.setattr(partition_change, "_eligible", lambda *_: ((), ()))


# --- elections --------------------------------------------------------------------------------------------------------


@caught_by(*LOSSES)
def elects_whoever_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rules, "election", property(lambda _: Election.UNCLEAN))


@caught_by("MonotonicLeaderEpoch", *LOSSES)
def elects_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    change = Draft._change_partition

    def keeps(self: Draft, record: Any) -> None:
        partitions = self._partitions_of(record.topic_id)
        epoch = partitions[record.partition_id].leader_epoch
        change(self, record)
        partitions[record.partition_id] = partitions[record.partition_id]._replace(leader_epoch=epoch)

    table: dict[Any, Any] = APPLY
    patch.setitem(table, PartitionChangeRecord, keeps)


@caught_by("LeaderInIsr", "ValidControllerIsrAndElr", *LOSSES)
def elects_out_of_all_replicas(patch: pytest.MonkeyPatch) -> None:
    def first(wanted: Partition, isr: Any, _others: Any, active: Container[int], _election: Any) -> Any:
        for each in (wanted.leader, *wanted.replicas):
            if each in active:
                return each, isr if each in isr else (*isr, each), False
        return -1, isr, False

    patch.setattr(partition_change, "_elect", first)


@caught_by("Convergence")
def leaves_the_leaderless_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "_settle_troubled", lambda *_: None)


@caught_by("Convergence")
def looks_only_at_brokers_that_go(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes back is not considered as a leader."""
    recheck = PartitionIndex._recheck
    patch.setattr(
        PartitionIndex,
        "_recheck",
        lambda self, numbers, rules: recheck(self, [each for each in numbers if each not in self.active], rules),
    )


@caught_by("Convergence")
def never_returns_to_the_preferred(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "return_to_preferred", lambda _: [])


# --- moves ------------------------------------------------------------------------------------------------------------


@caught_by("MovesBounded")
def moves_everything_at_once(patch: pytest.MonkeyPatch) -> None:
    plan = balance.plan_moves
    patch.setattr(upkeep, "plan_moves", lambda index, _limit, most: plan(index, 1_000, most))


@caught_by("Convergence")
def moves_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "plan_moves", lambda *_: [])


@caught_by("ReplicasLeaveWithAnEpoch")
def lets_replicas_leave_in_silence(patch: pytest.MonkeyPatch) -> None:
    plain = partition_change.settle

    def silent(before: Partition, *rest: Any, **more: Any) -> Partition:
        after = plain(before, *rest, **more)
        return after._replace(leader_epoch=before.leader_epoch) if after.leader == before.leader else after

    for module in (brokers, partitions, reassignment, upkeep):
        patch.setattr(module, "settle", silent)


@caught_by("LeaderInIsr", "ValidControllerIsrAndElr", "Convergence", *LOSSES)
def ends_a_move_before_anybody_has_arrived(patch: pytest.MonkeyPatch) -> None:
    def ends(
        wanted: Partition, isr: tuple[int, ...], _eligible: tuple[int, ...], _rules: Rules
    ) -> tuple[Partition, tuple[int, ...]]:
        if not wanted.removing_replicas:
            return wanted._replace(adding_replicas=()), isr
        gone = wanted.removing_replicas
        after = partition_change.without_replicas(wanted, gone)
        return after._replace(adding_replicas=(), removing_replicas=()), tuple(each for each in isr if each not in gone)

    patch.setattr(partition_change, "_complete_move", ends)


# --- other rules ------------------------------------------------------------------------------------------------------


@caught_by("ProducerIdsOnce")
def gives_producer_ids_by_broker(patch: pytest.MonkeyPatch) -> None:
    allocate = controller.allocate_producer_ids

    def again(command: AllocateProducerIds, view: Any) -> Decision[Any, Any]:
        return answer((), allocate(command, view).reply)

    patch.setitem(controller._PLAIN, AllocateProducerIds, again)


@caught_by("BoundedPieces", "SnapshotIsTheImage", "IndexFollows", "Convergence", "KeyError", "ValueError")
def forgets_to_take_old_places_out_of_the_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionIndex, "_remove", lambda *_: None)


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "The controller with one rule taken out"
ABOUT = """\
The controller core (`penstock.metadata`) in worlds of controllers and simulated brokers
(`tests/simulation/controller_core/mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
