"""A whole node keeps its guarantees through crashes, power cuts, and all other faults that a seed draws.

200 seeds are fixed; every run adds fresh ones. A failure names its seed and the command that replays it. Longer runs:
`./dev simulate node`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from tests.simulation.kit import regressions, seed_runs
from tests.simulation.kit.seed_runs import output_of_process
from tests.simulation.one_server.operated_node import OperatedNode
from tests.simulation.one_server.world import Poor, run_seed

SEEDS = 120
CHUNK = 20
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 4


run_all = partial(seed_runs.run_all, run_seed, "one_server")


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
    lines = regressions.PATH.read_text().splitlines()
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


# --- determinism ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_a_seed_tells_the_same_story_twice(first: int) -> None:
    seeds = range(first, first + 5)
    assert run_all(seeds) == run_all(seeds)


def test_a_seed_tells_the_same_story_in_another_process() -> None:
    first, second = (output_of_process("one_server", "7", "--trace", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 1_000
    assert first == second


def test_a_draw_from_outside_the_seed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10_000_000))
    monkeypatch.setattr("penstock.simulator.entropy.SimulatedEntropy.below", lambda _, end: next(numbers) % end)
    assert run_seed(1).trace_hash != run_seed(1).trace_hash


# --- the harness itself -----------------------------------------------------------------------------------------------


def test_a_world_in_which_nothing_crashes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kill", "cut_power"):
        monkeypatch.setattr(OperatedNode, name, OperatedNode.stop)
    with pytest.raises(Poor, match="0 crashes"):
        run_seed(3)


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: OperatedNode) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(OperatedNode, "look", find)
    with pytest.raises(AssertionError, match=r"seed 5 failed: .*python -m tests\.simulation\.one_server 5"):
        run_all([5])
