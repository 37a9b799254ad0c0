"""Controllers on a quorum, with one rule taken out: `python -m tests.simulation.cluster_mutants --help`."""

import sys
from typing import Any

import pytest

from penstock.metadata.image import Image
from tests.simulation import controller_mutants
from tests.simulation.cluster_faults import run_seed
from tests.simulation.cluster_world import STRIDE, Cluster, Seat
from tests.simulation.controller_brokers import Broker
from tests.simulation.controller_mutants import LOSSES
from tests.simulation.mutants import Measured, Mutants

MUTANTS = Mutants("cluster", run_seed, seeds_max=300)
caught_by = MUTANTS.caught_by


# --- controllers on a quorum ------------------------------------------------------------------------------------------


@caught_by("ControllerHasTheLog", "InconsistentRecord", "ProducerIdsOnce", "MonotonicPartitionEpoch", *LOSSES)
def decides_before_its_log_is_committed(patch: pytest.MonkeyPatch) -> None:
    """It begins when it is elected, from what it knows to be committed, though its log has more."""

    def begins(self: Seat) -> None:
        if self.led_epoch is not None and not self.is_active:
            self._house.world.after(0.0, self._begin, self.led_epoch)

    patch.setattr(Seat, "_begin_if_all_is_committed", begins)


@caught_by("ControllerHasTheLog", "ConsistentCommittedData", "InconsistentRecord")
def keeps_what_was_never_committed(patch: pytest.MonkeyPatch) -> None:
    step_down = Seat.step_down

    def keeps(self: Seat) -> None:
        if self.is_active:
            self.image = self.controller.image
        step_down(self)

    patch.setattr(Seat, "step_down", keeps)


@caught_by("AnswersAreCommitted")
def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: Seat) -> None:
        pending, self._pending = self._pending, []
        for each in pending:
            self._cluster.answered(self._house, each)
            each.answer(each.reply)

    patch.setattr(Seat, "_answer_committed", at_once)


@caught_by("AnswersAreCommitted")
def takes_the_records_of_another_leader_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """What was asked of it in an epoch that it lost is answered when something else is committed there."""
    step_down = Seat.step_down

    def keeps_waiting(self: Seat) -> None:
        pending = self._pending
        step_down(self)
        self._pending = pending

    patch.setattr(Seat, "step_down", keeps_waiting)


# --- brokers that follow ----------------------------------------------------------------------------------------------


@caught_by(*LOSSES)
def acts_on_what_it_was_in_an_earlier_life(patch: pytest.MonkeyPatch) -> None:
    """A broker that has not yet learned of its own registration reads that it leads, and believes it."""

    def believes(self: Cluster, broker: Broker) -> tuple[int, Image]:
        seat: Any = self._world.nodes[broker.broker_id].machine
        return seat.applied * STRIDE, seat.image

    patch.setattr(Cluster, "metadata", believes)


# --- the controller ---------------------------------------------------------------------------------------------------

caught_by("LiveBrokersStay")(controller_mutants.begins_with_the_sessions_of_somebody_else)
caught_by("ValidControllerState", "LeaderInIsr")(controller_mutants.fences_before_partitions_are_handed_over)
caught_by(*LOSSES)(controller_mutants.trusts_who_lost_records)
caught_by(*LOSSES)(controller_mutants.elects_whoever_is_there)
caught_by("Convergence")(controller_mutants.leaves_the_leaderless_alone)


# --- running them -----------------------------------------------------------------------------------------------------


def measure(name: str) -> Measured:
    return MUTANTS.measure(name)


TITLE = "Controllers on a quorum with one rule taken out"
ABOUT = """\
Raft, controllers and brokers together (`tests/simulation/cluster_world.py`), with rules taken out of what carries
controllers on a quorum, of the brokers and, for comparison, of the controller
(`tests/simulation/cluster_mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
