"""Raft and controller cores together keep their invariants in worlds of whole clusters, for any seed.

120 seeds of 60 virtual seconds are fixed; every run adds fresh ones. A failure names its seed and the command that
replays it. Longer runs: `./dev simulate cluster`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from tests.simulation.controller_core.brokers import Broker
from tests.simulation.controllers_on_quorum.faults import run_seed
from tests.simulation.controllers_on_quorum.options import FAULTS
from tests.simulation.controllers_on_quorum.world import Cluster
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.kit.seed_runs import output_of_process

SEEDS = 80
CHUNK = 20
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 6


run_all = partial(seed_runs.run_all, run_seed, "controllers_on_quorum")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_cluster_keeps_its_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    assert sum(run.acknowledged for run in runs) > 100 * len(runs), "little was written"
    assert sum(run.controllers for run in runs) > 2 * len(runs), "controllers were hardly ever replaced"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    seeds = seeds_of("cluster")
    assert seeds, "mutants leave their seeds in regressions.txt"
    run_all(seeds)


def test_everything_happens() -> None:
    counts: Counter[str] = Counter()
    for run in run_all(range(2_000, 2_030)):
        counts.update(run.counts)
    for kind in (*FAULTS, "really lost", "probes"):
        assert counts[kind] >= 3, f"{kind} happens too rarely: {counts}"


def test_a_seed_tells_the_same_story_twice_and_in_another_process() -> None:
    seeds = range(0, SEEDS, 48)
    assert run_all(seeds) == run_all(seeds)
    first, second = (output_of_process("controllers_on_quorum", "10", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 1_000
    assert first == second


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: Cluster) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(Cluster, "end", find)
    with pytest.raises(AssertionError, match=r"seed 5 failed: planted; replay it: python -m tests\.simulation\.contr"):
        run_all([5])


def test_a_cluster_whose_brokers_never_come_back_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Broker.start
    monkeypatch.setattr(Broker, "start", lambda broker: start(broker) if broker.life == 0 else None)
    with pytest.raises(AssertionError, match="Convergence"):
        run_all(range(20))
