"""A whole node keeps its promises through crashes, power cuts, and everything else that a seed has in store.

500 seeds are fixed; every run adds fresh ones. A failure names its seed and how to replay it. More at once:
`./dev simulate-node`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import SystemRandom

import pytest

from tests.simulation import stories
from tests.simulation.node_house import House
from tests.simulation.node_world import Poor, run_seed
from tests.simulation.stories import story_elsewhere

SEEDS = 500
CHUNK = 20
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 1


run_all = partial(stories.run_all, run_seed, "node")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_node_keeps_its_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    for run in runs:
        assert run.virtual_s >= 10.0
        assert run.acknowledged >= 200
        assert run.crashes >= 1
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    lines = Path(__file__).with_name("regressions.txt").read_text().splitlines()
    seeds = [int(line.split()[1]) for line in lines if line.startswith("node ")]
    assert seeds
    run_all(seeds)


def test_every_kind_of_fault_happens() -> None:
    happened: Counter[str] = Counter()
    for run in run_all(range(25)):
        happened.update(run.counts)
    for kind in (
        *("power cut", "kill", "clean stop", "operator restart", "disk error", "full disk", "write back"),
        *("reset", "partition", "clog", "pause", "clock", "client kill"),
    ):
        assert happened[kind] >= 3, f"{kind} happens too rarely: {happened}"


# --- one seed, one story ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_a_seed_tells_the_same_story_twice(first: int) -> None:
    seeds = range(first, first + 5)
    assert run_all(seeds) == run_all(seeds)


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    first, second = (story_elsewhere("node", "7", "--trace", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 1_000
    assert first == second


def test_a_draw_from_outside_the_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10_000_000))
    monkeypatch.setattr("penstock.simulator.entropy.SimulatedEntropy.below", lambda _, end: next(numbers) % end)
    assert run_seed(1).trace_hash != run_seed(1).trace_hash


# --- the harness itself -----------------------------------------------------------------------------------------------


def test_a_world_in_which_nothing_crashes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kill", "cut_power"):
        monkeypatch.setattr(House, name, House.stop)
    with pytest.raises(Poor, match="0 crashes"):
        run_seed(3)


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: House) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(House, "look", find)
    with pytest.raises(AssertionError, match=r"seed 5 failed: .*python -m tests\.simulation\.node 5"):
        run_all([5])
