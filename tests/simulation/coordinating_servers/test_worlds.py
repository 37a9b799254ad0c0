"""Three whole servers keep committed offsets, and assign a partition to one member, for any seed.

Some seeds are fixed, and all that ever failed; every run adds fresh ones. `python -m
tests.simulation.coordinating_servers` runs more.
"""

import time
from collections.abc import Callable
from functools import partial
from random import SystemRandom
from typing import Any

import pytest

from penstock.coordinator.events import LogRead, ReadLog
from penstock.coordinator.groups import GroupShard
from penstock.coordinator.runtime import ShardRuntime
from penstock.server.groups.group_log import LogReader
from tests.simulation.coordinating_servers.world import run_seed
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of

SEEDS = 8
CHUNK = 4
FRESH = SystemRandom().randrange(10**9, 10**12)
MUTANT_SEEDS = 30

run_all = partial(seed_runs.run_all, run_seed, "coordinating_servers")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_coordinators_keep_what_they_acknowledge(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    runs = run_all([*range(first, first + CHUNK), FRESH + first])
    assert sum(run.acknowledged for run in runs) > 100 * CHUNK
    assert sum(run.meetings for run in runs) > 5 * CHUNK
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once_hold() -> None:
    run_all(seeds_of("coordinators"))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_seed(3) == run_seed(3)


# --- the checks detect bugs -------------------------------------------------------------------------------------------


def answers_before_anything_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ShardRuntime.step

    def at_once(self: ShardRuntime[GroupShard], event: Any, now: Any) -> Any:
        self.committed_end = 1 << 62
        return step(self, event, now)

    monkeypatch.setattr(ShardRuntime, "step", at_once)


def begins_without_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_reader: LogReader, wanted: ReadLog) -> LogRead:
        return LogRead(wanted.epoch, wanted.offset, (), wanted.end_offset)

    monkeypatch.setattr(LogReader, "read", nothing)


@pytest.mark.parametrize(
    ("mutant", "first"),
    [(answers_before_anything_is_committed, 7), (begins_without_its_log, 1)],
)
def test_it_is_noticed_who(
    mutant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed is one that is known to notice it, or a little before."""
    mutant(monkeypatch)
    found = (reason for seed in range(first, first + MUTANT_SEEDS) if (reason := breach_of(seed)) is not None)
    assert next(found, "") in ("NoAcknowledgedCommitLost", "OneMemberPerPartition")


def breach_of(seed: int) -> str | None:
    """The invariant that is broken in a world, if any."""
    try:
        run_seed(seed)
    except AssertionError as error:
        return str(error).partition(":")[0]
    return None
