"""Three whole servers keep what they acknowledge in worlds of twenty virtual seconds, for any seed.

15 seeds are fixed, and all that ever failed; every run adds fresh ones; the 20 worlds of
`replicating_servers.test_upheaval` have the same faults and more. Longer runs: `./dev simulate replicas`.
"""

import time
from collections.abc import Callable
from functools import partial
from random import SystemRandom

import pytest

from penstock.log.log import Log
from penstock.replication.fetch_sessions import RequestedPartition
from penstock.replication.follower import Following
from penstock.replication.leader import FITS, Asked, Leader, Verdict
from penstock.server.fetching.follower_fetching import FollowerFetching
from penstock.server.fetching.reading import NO_RECORDS
from penstock.server.membership.disk_space import Room
from penstock.server.partitions.partition import Followed, Partition
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.wire.hot.fetch import FetchedPartition
from tests.simulation.kit import seed_runs
from tests.simulation.kit.regressions import seeds_of
from tests.simulation.replicating_servers.world import run_seed

SEEDS = 15
SEEDS_FOR_MUTANTS = 50
CHUNK = 5
PROMISES = ("ConsistentRead", "LogMatching", "NoCommittedRecordLostGlobally", "Convergence", "DeletedStaysDeleted")
FRESH = SystemRandom().randrange(10**9, 10**12)

run_all = partial(seed_runs.run_all, run_seed, "replicating_servers")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_servers_keep_what_they_acknowledge(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    runs = run_all([*range(first, first + CHUNK), FRESH + first])
    assert sum(run.acknowledged for run in runs) > 100 * CHUNK
    assert sum(run.read_nearby for run in runs) > 2 * CHUNK
    assert sum(run.deletions for run in runs) > 10 * CHUNK
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_seeds_that_failed_once_hold() -> None:
    run_all(seeds_of("replicas"))


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_seed(3) == run_seed(3)


# --- the checks detect bugs -------------------------------------------------------------------------------------------


def commits_what_only_the_leader_has(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Partition.advance

    def alone(self: Partition) -> None:
        keeper, self.keeper = self.keeper, None
        advance(self)
        self.keeper = keeper

    monkeypatch.setattr(Partition, "advance", alone)


def cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None:
        return None

    monkeypatch.setattr(ReplicaRunner, "_truncated", lambda _self, _log, _end_offset: nothing)


def compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch by a follower is served from its offset on, without comparing the records before it."""

    def by_offsets(self: Leader, asked: Asked) -> Verdict:
        return FITS if asked.offset <= self._log.written_end else Verdict(diverging=(self.epoch, self._log.written_end))

    monkeypatch.setattr(Leader, "examine", by_offsets)


def acknowledges_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Following, "is_durable", property(lambda _self: True))
    monkeypatch.setattr(Log, "durable_end", property(lambda self: self.written_end))


def followers_show_what_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at = FollowerFetching._look_at

    def all_of_it(
        self: FollowerFetching, requested: RequestedPartition, bytes_left: int, *, at_least_one: bool
    ) -> FetchedPartition:
        partition = self.partition_of(requested)
        if not isinstance(partition, Followed) or not 0 <= requested.offset <= partition.log.written_end:
            return look_at(self, requested, bytes_left, at_least_one=at_least_one)
        log = partition.log
        part = log.read(requested.offset, requested.bytes_max, limit=log.written_end)
        return FetchedPartition(requested.index, 0, log.written_end, -1, 0, None, NO_RECORDS if part is None else part)

    monkeypatch.setattr(FollowerFetching, "_look_at", all_of_it)


def never_believes_in_room(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Room.look

    def gloomy(self: Room, free_bytes: int, refusals: int, now: int) -> bool:
        return not self.is_full and look(self, free_bytes, refusals, now)

    monkeypatch.setattr(Room, "look", gloomy)


def followers_count_idleness_on_another_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Log.append_replicated
    monkeypatch.setattr(Log, "append_replicated", lambda self, data, now_ms: append(self, data, now_ms=now_ms % 10**9))


def acknowledges_deletions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "low_watermark", lambda self: self._log.start_offset)


@pytest.mark.parametrize(
    ("mutant", "first"),
    [
        (commits_what_only_the_leader_has, 0),
        (cuts_nothing, 0),
        (compares_nothing, 23),
        (acknowledges_before_the_sync, 9),
        (followers_show_what_is_not_committed, 0),
        (never_believes_in_room, 0),
        (followers_count_idleness_on_another_clock, 0),
        (acknowledges_deletions_alone, 78),
    ],
)
def test_it_is_noticed_who(
    mutant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed is one that is known to notice it, or a little before."""
    mutant(monkeypatch)
    found = (reason for seed in range(first, first + SEEDS_FOR_MUTANTS) if (reason := breach_of(seed)) is not None)
    assert next(found, "") in PROMISES


def breach_of(seed: int) -> str | None:
    """The invariant that is broken in a world, if any."""
    try:
        run_seed(seed)
    except AssertionError as error:
        return str(error).partition(":")[0]
    return None
