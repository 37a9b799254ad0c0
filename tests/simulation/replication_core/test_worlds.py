"""Replicas keep their invariants in worlds under the real controller, for any seed.

240 seeds of 60 virtual seconds are fixed; every run adds fresh ones. A failure names its seed and the command that
replays it. Longer runs: `./dev simulate replication`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from penstock.replication.leader import Leader
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.kit.seed_runs import output_of_process
from tests.simulation.replication_core.checks import Checks
from tests.simulation.replication_core.faults import run_seed
from tests.simulation.replication_core.options import FAULTS, draw_options
from tests.simulation.replication_core.world import Broker

SEEDS = 160
CHUNK = 40
FRESH = SystemRandom().randrange(10**9, 10**12)
FRESH_PER_CHUNK = 9


run_all = partial(seed_runs.run_all, run_seed, "replication_core")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_replicas_keep_their_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    fresh = FRESH + first // CHUNK * FRESH_PER_CHUNK
    runs = run_all([*range(first, first + CHUNK), *range(fresh, fresh + FRESH_PER_CHUNK)])
    assert len({run.trace_hash for run in runs}) == len(runs), "two seeds told one story"
    assert sum(run.acknowledged for run in runs) > 100 * len(runs), "little was written"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once() -> None:
    seeds = seeds_of("replication")
    assert seeds, "mutants leave their seeds in regressions.txt"
    run_all(seeds)


def test_everything_happens() -> None:
    counts: Counter[str] = Counter()
    for run in run_all(range(2_000, 2_020)):
        counts.update(run.counts)
    for kind in (*FAULTS, "failed log"):
        assert counts[kind] >= 3, f"{kind} happens too rarely: {counts}"


def test_worlds_differ() -> None:
    options = [draw_options(seed) for seed in range(200)]
    assert {each.brokers for each in options} == {3, 4, 5}
    assert {each.is_fsync for each in options} == {True, False}
    assert {each.is_beyond for each in options} == {True, False}
    assert {each.batch_max for each in options} == {1, 2, 5}
    assert {each.fails_logs for each in options} == {True, False}


# --- determinism ------------------------------------------------------------------------------------------------------


def test_a_seed_tells_the_same_story_twice_and_in_another_process() -> None:
    seeds = range(0, SEEDS, 48)
    assert run_all(seeds) == run_all(seeds)
    first, second = (output_of_process("replication_core", "10", hash_seed=each) for each in ("1", "2"))
    assert first.count("\n") > 500
    assert first == second


# --- the harness itself -----------------------------------------------------------------------------------------------


def test_a_failing_seed_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(_: Checks) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(Checks, "end", find)
    replay = r"seed 5 failed: planted; replay it: python -m tests\.simulation\.replication_core 5"
    with pytest.raises(AssertionError, match=replay):
        run_all([5])


def test_a_world_in_which_nothing_is_committed_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "advance", lambda _self, _now: False)
    with pytest.raises(AssertionError, match="Convergence"):
        run_all([3])


def test_a_loss_beyond_what_is_promised_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk does not keep synced data."""
    die = Broker.die

    def forgets(self: Broker, *, loses: bool) -> None:
        for log in self.disk.logs.values():
            log.synced_end = min(log.synced_end, log.start_offset)
        die(self, loses=loses)

    monkeypatch.setattr(Broker, "die", forgets)
    with pytest.raises(AssertionError):
        run_all(seed for seed in range(20) if draw_options(seed).is_fsync)
