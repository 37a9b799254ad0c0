"""Three whole servers keep their guarantees in worlds of twenty virtual seconds, for any seed.

25 seeds are fixed, and all that ever failed; every run adds fresh ones. Longer runs: `./dev simulate servers`.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import SystemRandom

import pytest

from penstock.metadata.events import Answer, LeaderKnown, Refuse
from penstock.metadata.runtime import ControllerRuntime, Leading
from penstock.server.controller.controller_runner import ControllerRunner
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.three_servers.world import run_seed

SEEDS = 25
CHUNK = 5
FRESH = SystemRandom().randrange(10**9, 10**12)

run_all = partial(seed_runs.run_all, run_seed, "three_servers")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_whole_servers_keep_their_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    runs = run_all([*range(first, first + CHUNK), FRESH + first])
    assert sum(run.made for run in runs) > 10 * CHUNK
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once_hold() -> None:
    run_all(seeds_of("servers"))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_seed(3) == run_seed(3)


# --- the checks detect bugs -------------------------------------------------------------------------------------------


def replies_before_anything_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: ControllerRuntime) -> None:
        replies, _ = self._replies.leave(1 << 62)
        self._effects += [Answer(ticket, reply) for ticket, reply in replies]

    monkeypatch.setattr(ControllerRuntime, "_leave", at_once)


def decides_before_it_has_applied_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    learns = ControllerRuntime._learn_leader

    def at_once(self: ControllerRuntime, event: LeaderKnown) -> None:
        learns(self, event)
        if self.leading is not None:
            self.leading = Leading(event.epoch, -1)
            self._begin_if_leading()

    monkeypatch.setattr(ControllerRuntime, "_learn_leader", at_once)


def keeps_what_was_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that no longer leads continues from its own decisions, not from the committed state."""

    def keeps(self: ControllerRuntime) -> None:
        self.leading = None
        if self.is_active:
            self.is_active = False
            self.controller._liveness.end()
            self._unpublished.clear()
            self._effects += [Refuse(ticket, RuntimeError("lost")) for ticket in self._replies.clear()]

    monkeypatch.setattr(ControllerRuntime, "_step_down", keeps)


def forgets_the_snapshots_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControllerRunner, "_load", lambda *_: None)


MUTANTS = [
    (replies_before_anything_is_committed, 57, "were made and are not known"),
    (decides_before_it_has_applied_its_log, 0, "have different clusters"),
    (keeps_what_was_not_committed, 0, "have different clusters"),
    (forgets_the_snapshots_it_is_given, 30, "cannot be read"),
]
"""Each with a seed that is known to notice it, or a little before, and a part of the failure's text."""


@pytest.mark.parametrize(("mutate", "first", "said"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_server_with_a_planted_fault_is_caught(
    mutate: Callable[..., None], first: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert any(said in breach for breach in breaches(first))


def breaches(first: int) -> Iterator[str]:
    for seed in range(first, first + 30):
        try:
            run_seed(seed)
        except Exception as breach:
            yield str(breach)
