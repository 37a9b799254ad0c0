"""Groups keep their invariants in worlds of coordinators and simulated consumers, for any seed.

400 seeds of 60 virtual seconds are fixed; every run adds fresh ones. A failure names its seed and the command that
replays it. Longer runs: `./dev simulate group`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from penstock.coordinator.runtime import ShardRuntime
from tests.simulation.groups_core.checks import Checks
from tests.simulation.groups_core.faults import run_seed
from tests.simulation.groups_core.options import FAULTS, KINDS, draw_options
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.kit.seed_runs import output_of_process

SEEDS = 400
CHUNK = 50
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 5

run_all = partial(seed_runs.run_all, run_seed, "groups_core")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_groups_keep_their_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    assert sum(run.acknowledged for run in runs) > 50 * len(runs), "little was committed"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    seeds = seeds_of("group")
    assert seeds, "mutants leave their seeds in regressions.txt"
    run_all(seeds)


def test_everything_happens() -> None:
    counts: Counter[str] = Counter()
    for run in run_all(range(2_000, 2_120)):
        counts.update(run.counts)
    for kind in (*FAULTS, "outage", "expired", "refused", "lost batches", "gap at the end", "commits together"):
        assert counts[kind] >= 3, f"{kind} happens too rarely: {counts}"


def test_worlds_differ() -> None:
    options = [draw_options(seed) for seed in range(200)]
    assert {kind for each in options for kind in each.groups} == set(KINDS)
    assert {each.uses_patterns for each in options} == {True, False}
    assert {each.uses_range for each in options} == {True, False}


# --- determinism ------------------------------------------------------------------------------------------------------


def test_a_seed_tells_the_same_story_twice_and_in_another_process() -> None:
    seeds = range(0, SEEDS, 80)
    assert run_all(seeds) == run_all(seeds)
    first, second = (output_of_process("groups_core", "10", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 100
    assert first == second


# --- the harness itself -----------------------------------------------------------------------------------------------


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: Checks) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(Checks, "end", find)
    with pytest.raises(
        AssertionError, match=r"seed 5 failed: planted; replay it: python -m tests\.simulation\.groups_core 5"
    ):
        run_all([5])


def test_a_world_in_which_nothing_is_answered_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardRuntime, "_answer", lambda *_: None)
    with pytest.raises(AssertionError, match="Convergence"):
        run_all([3])
