"""Three whole servers keep their promises in worlds of twenty virtual seconds, whatever a seed has in store.

50 seeds are fixed, and all that ever failed; every run adds fresh ones. More at once: `./dev simulate-servers`.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import SystemRandom

import pytest

from penstock.server.controller_runner import ControllerRunner, Leading
from tests.simulation import stories
from tests.simulation.regressions import seeds_of
from tests.simulation.servers_world import run_seed

SEEDS = 50
CHUNK = 5
FRESH = SystemRandom().randrange(10**9, 10**12)

run_all = partial(stories.run_all, run_seed, "servers")


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


# --- the checks can fail ----------------------------------------------------------------------------------------------


def replies_before_anything_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_self: ControllerRunner) -> None:
        return None

    monkeypatch.setattr(ControllerRunner, "_until_committed", at_once)


def decides_before_it_has_applied_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ControllerRunner.leader_known

    def at_once(self: ControllerRunner, leader_id: int, epoch: int, start_offset: int) -> None:
        known(self, leader_id, epoch, start_offset)
        if self._leading is not None:
            self._leading = Leading(epoch, -1)
            self._begin_if_leading()

    monkeypatch.setattr(ControllerRunner, "leader_known", at_once)


def keeps_what_was_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that leads no longer goes on from what it had decided, not from what is committed."""

    def keeps(self: ControllerRunner) -> None:
        self._leading = None
        if self.is_active:
            self.is_active = False
            self._controller._liveness.end()
            self._unpublished.clear()
            self._committed.fail(RuntimeError("lost"))

    monkeypatch.setattr(ControllerRunner, "_step_down", keeps)


def forgets_the_snapshots_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControllerRunner, "load", lambda *_: None)


MUTANTS = [
    (replies_before_anything_is_committed, 57, "were made and are not known"),
    (decides_before_it_has_applied_its_log, 0, "have different clusters"),
    (keeps_what_was_not_committed, 0, "have different clusters"),
    (forgets_the_snapshots_it_is_given, 30, "cannot be read"),
]
"""With a seed that is known to show them, or a little before, and what is said when they are caught."""


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
