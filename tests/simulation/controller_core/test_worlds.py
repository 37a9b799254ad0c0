"""The controller keeps its invariants in worlds of cores and simulated brokers, for any seed.

A hundred seeds of 60 virtual seconds are fixed; every run adds fresh ones. A failure names its seed and the command
that replays it.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from tests.simulation.controller_core.checks import Checks
from tests.simulation.controller_core.faults import run_seed
from tests.simulation.controller_core.options import FAULTS
from tests.simulation.controller_core.world import World
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of

SEEDS = 100
CHUNK = 20
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 2

run_all = partial(seed_runs.run_all, run_seed, "controller_core")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_controller_keeps_its_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    assert sum(run.acknowledged for run in runs) > 100 * len(runs), "little was written"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    run_all(seeds_of("controller"))


def test_everything_happens() -> None:
    counts: Counter[str] = Counter()
    for run in run_all(range(2_000, 2_020)):
        counts.update(run.counts)
    for kind in (*FAULTS, "really lost", "full disk"):
        assert counts[kind] >= 5, f"{kind} happens too rarely: {counts}"


def test_a_seed_tells_the_same_story_twice_and_in_another_process() -> None:
    assert run_all(range(0, 60, 20)) == run_all(range(0, 60, 20))
    first, second = (seed_runs.output_of_process("controller_core", "122", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 50
    assert first == second


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(Checks, "end", find)
    with pytest.raises(AssertionError, match=r"seed 5 failed: planted; replay it: python -m tests\.simulation\.contr"):
        run_all([5])


def test_a_world_that_never_calms_down_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "go_on", lambda _: None)
    with pytest.raises(AssertionError, match="failed"):
        run_all(range(20))
