"""Controllers on a quorum, with one rule removed.

`python -m tests.simulation.controllers_on_quorum.mutants --help`.
"""

import sys
from typing import Any

import pytest

from penstock.metadata.events import Answer, LeaderKnown
from penstock.metadata.image import Image
from penstock.metadata.runtime import ControllerRuntime, Leading
from penstock.model.replies import ReplyQueue
from tests.simulation.controller_core import mutants as controller_mutants
from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controller_core.mutants import LOSSES
from tests.simulation.controllers_on_quorum.faults import run_seed
from tests.simulation.controllers_on_quorum.world import STRIDE, Cluster
from tests.simulation.kit.mutants import Measured, Mutants

MUTANTS = Mutants("cluster", run_seed, seeds_max=300)
caught_by = MUTANTS.caught_by


# --- controllers on a quorum ------------------------------------------------------------------------------------------


@caught_by(
    "ControllerHasTheLog",
    "InconsistentRecord",
    "LeaderInIsr",
    "ProducerIdsOnce",
    "MonotonicPartitionEpoch",
    *LOSSES,
)
def decides_before_its_log_is_committed(patch: pytest.MonkeyPatch) -> None:
    """It begins when it is elected, from the committed state it knows, though its log has more."""
    learns = ControllerRuntime._learn_leader

    def begins(self: ControllerRuntime, event: LeaderKnown) -> None:
        learns(self, event)
        if self.leading is not None:
            self.leading = Leading(event.epoch, -1)
            self._begin_if_leading()

    patch.setattr(ControllerRuntime, "_learn_leader", begins)


@caught_by("ControllerHasTheLog", "ConsistentCommittedData", "InconsistentRecord")
def keeps_what_was_never_committed(patch: pytest.MonkeyPatch) -> None:
    step_down = ControllerRuntime._step_down

    def keeps(self: ControllerRuntime) -> None:
        if self.is_active:
            self.image = self.controller.image
        step_down(self)

    patch.setattr(ControllerRuntime, "_step_down", keeps)


@caught_by("AnswersAreCommitted")
def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: ControllerRuntime) -> None:
        replies, _ = self._replies.leave(1 << 62)
        self._effects += [Answer(ticket, reply) for ticket, reply in replies]

    patch.setattr(ControllerRuntime, "_leave", at_once)


@caught_by("AnswersAreCommitted")
def takes_the_records_of_another_leader_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """A request in an epoch that it lost is answered when another entry is committed at that offset."""
    step_down = ControllerRuntime._step_down

    def keeps_waiting(self: ControllerRuntime) -> None:
        replies, self._replies = self._replies, ReplyQueue()
        step_down(self)
        self._replies = replies

    commits = ControllerRuntime._commit

    def answers(self: ControllerRuntime, end_offset: int) -> None:
        commits(self, end_offset)
        self._leave()

    patch.setattr(ControllerRuntime, "_step_down", keeps_waiting)
    patch.setattr(ControllerRuntime, "_commit", answers)


# --- following brokers ------------------------------------------------------------------------------------------------


@caught_by(*LOSSES)
def acts_on_what_it_was_in_an_earlier_life(patch: pytest.MonkeyPatch) -> None:
    """A broker that has not yet learned of its own registration reads that it leads, and acts on it."""

    def believes(self: Cluster, broker: Broker) -> tuple[int, Image]:
        controller: Any = self._world.nodes[broker.broker_id].machine
        return controller.applied * STRIDE, controller.image

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
Raft, controllers and brokers together (`tests/simulation/controllers_on_quorum/world.py`), with rules taken out of what
carries controllers on a quorum, of the brokers and, for comparison, of the controller
(`tests/simulation/controllers_on_quorum/mutants.py`)."""

if __name__ == "__main__":
    sys.exit(MUTANTS.main(measure, TITLE, ABOUT))
