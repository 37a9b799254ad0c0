"""Four whole servers keep what they acknowledge while replicas move, disks are lost and rot, and requests are doubled.

These worlds have all faults of `replicating_servers.test_worlds`. 20 seeds are fixed, and all that ever failed; every
run adds fresh ones. Longer runs: `./dev simulate upheavals`.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from penstock.log.producers import ProducerStates
from penstock.records.header import BatchView
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.replicating_servers.upheaval_world import (
    DUPLICATES,
    EXPIRED,
    LOST_DISKS,
    MOVES,
    REPLICATED,
    ROT,
    draw_upheaval,
    run_seed,
)

SEEDS = 20
CHUNK = 4
FRESH = SystemRandom().randrange(10**9, 10**12)

run_all = partial(seed_runs.run_all, run_seed, "replicating_servers.upheavals")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_servers_keep_what_they_acknowledge(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    runs = run_all([*range(first, first + CHUNK), FRESH + first])
    assert sum(run.acknowledged for run in runs) > 100 * CHUNK
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.counts)
    for kind in (MOVES, EXPIRED, DUPLICATES):
        assert counts[kind], f"{kind} does not happen: {counts}"
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once_hold() -> None:
    run_all(seeds_of("upheavals"))


def test_everything_is_drawn() -> None:
    drawn = [draw_upheaval(seed) for seed in range(SEEDS)]
    assert {each.loss for each in drawn} == {LOST_DISKS, ROT, REPLICATED, ""}
    assert {each.moves for each in drawn} == {True, False}
    assert len({each.duplicates for each in drawn}) == 3


# --- the checks detect bugs -------------------------------------------------------------------------------------------


def takes_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda _self, _batch: None)


def trusts_batches_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchView, "is_intact", property(lambda _self: True))


@pytest.mark.parametrize(
    ("mutant", "loss", "reasons"),
    [
        (takes_a_batch_twice, None, ("Once", "ConsistentRead", "LogMatching")),
        (trusts_batches_unseen, ROT, ("LogMatching", "ConsistentRead", "Convergence")),
    ],
)
def test_it_is_noticed_who(
    mutant: Callable[[pytest.MonkeyPatch], None],
    loss: str | None,
    reasons: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    seeds = (seed for seed in range(500) if loss is None or draw_upheaval(seed).loss == loss)
    found = (reason for _, seed in zip(range(25), seeds, strict=False) if (reason := breach_of(seed)) is not None)
    assert next(found, "") in reasons


def breach_of(seed: int) -> str | None:
    """The invariant that is broken in a world, if any."""
    try:
        run_seed(seed)
    except AssertionError as error:
        return str(error).partition(":")[0]
    return None
