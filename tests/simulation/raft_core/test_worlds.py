"""The metadata quorum keeps its invariants in worlds of raft cores, for any seed.

A hundred seeds of 60 virtual seconds are fixed, and a thousand more with controllers on top
(`controllers_on_quorum.test_worlds`); every run adds fresh ones. A failure names its seed and the command that replays
it. Longer runs: `./dev simulate raft`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from penstock.raft.leader import Leader
from penstock.raft.roles import MOVES, Role
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.kit.seed_runs import output_of_process
from tests.simulation.raft_core.checks import Checks
from tests.simulation.raft_core.faults import run_seed
from tests.simulation.raft_core.options import FAULTS
from tests.simulation.raft_core.world import Chance

RARE = {
    # These require a truncation or an installation that outlasts its leader.
    (Role.UNATTACHED, Role.OBSERVER),
    (Role.VOTED, Role.OBSERVER),
    (Role.OBSERVER, Role.UNATTACHED),
    (Role.OBSERVER, Role.VOTED),
}
SEEDS = 100
CHUNK = 50
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 2


run_all = partial(seed_runs.run_all, run_seed, "raft_core")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_quorum_keeps_its_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    for run in runs:
        assert run.acknowledged >= 5, f"seed {run.seed} is a poor world: {run}"
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    seeds = seeds_of("raft")
    assert seeds, "mutants leave their seeds in regressions.txt"
    run_all(seeds)


def test_everything_happens() -> None:
    """Every kind of fault occurs, and every transition in the table of roles."""
    counts: Counter[str] = Counter()
    missing = set(MOVES) - RARE
    for seed in range(2_110, 2_410):
        run = run_seed(seed)
        counts.update(run.counts)
        missing -= run.moves
        if not missing and all(counts[kind] >= 10 for kind in FAULTS):
            return
    raise AssertionError(f"never seen: {missing}; faults: {counts}")


# --- determinism ------------------------------------------------------------------------------------------------------


def test_a_seed_tells_the_same_story_twice() -> None:
    seeds = range(0, SEEDS, 100)
    assert run_all(seeds) == run_all(seeds)


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    first, second = (output_of_process("raft_core", "10", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 1_000
    assert first == second


def test_a_draw_from_outside_the_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10_000_000))
    monkeypatch.setattr(Chance, "below", lambda _, end: next(numbers) % end)
    assert run_seed(1).trace_hash != run_seed(1).trace_hash


# --- the harness itself -----------------------------------------------------------------------------------------------


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: Checks) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(Checks, "end", find)
    with pytest.raises(
        AssertionError, match=r"seed 5 failed: planted; replay it: python -m tests\.simulation\.raft_core 5"
    ):
        run_all([5])


def test_a_world_in_which_nothing_is_committed_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "advance", lambda _: None)
    assert run_all([5])[0].acknowledged == 0
