"""With durability=replicated kills lose and stop nothing, single power cuts lose nothing, wide ones are reported.

Some seeds are fixed, and every run adds fresh ones. To replay one: `python -m tests.simulation.page_cache_servers kills
42`.
"""

from collections.abc import Callable
from random import SystemRandom

import pytest

from penstock.host.lossy import LossyDisk
from penstock.log.boot import Boot
from penstock.server.replicas.data_loss_reports import DataLossReports
from tests.simulation.page_cache_servers.world import KILLS, LOST, POWER_CUTS, SINGLE, WIDE, run_seed

SEEDS = 6
CHUNK = 2
FRESH = SystemRandom().randrange(10**9, 10**12)
PROMISES = ("ConsistentRead", "LogMatching", "NoCommittedRecordLostGlobally", "Convergence", "Reported")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.parametrize("crashes", [KILLS, SINGLE, WIDE])
def test_page_caches_keep_what_is_acknowledged(crashes: str, first: int) -> None:
    power_cuts = 0
    for seed in (*range(first, first + CHUNK), FRESH + first):
        try:
            run = run_seed(seed, crashes)
        except AssertionError as trouble:
            replay = f"python -m tests.simulation.page_cache_servers {crashes} {seed}"
            raise AssertionError(f"seed {seed} failed: {trouble}; replay it: {replay}") from trouble
        power_cuts += run.counts[POWER_CUTS]
        assert run.counts[LOST] == 0 or crashes == WIDE
    assert (power_cuts > 0) is (crashes != KILLS)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_seed(3, SINGLE) == run_seed(3, SINGLE)


def test_a_deleter_may_have_to_wait_for_a_minute_where_a_power_cut_took_all_that_was_known_of_it() -> None:
    assert run_seed(440693582524, SINGLE).deletions > 0


# --- the checks detect bugs -------------------------------------------------------------------------------------------


def takes_power_cuts_for_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    init = LossyDisk.__init__

    def with_one_boot(self: LossyDisk, *arguments: object, **options: object) -> None:
        init(self, *arguments, **options)  # type: ignore[arg-type]
        self.boot_id = "always"

    monkeypatch.setattr(LossyDisk, "__init__", with_one_boot)


def takes_kills_for_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Boot.begin

    async def distrustful(self: Boot, *, is_clean: bool) -> None:
        self.boot_id = f"{self.boot_id}, life {id(self)}"
        await begin(self, is_clean=is_clean)

    monkeypatch.setattr(Boot, "begin", distrustful)


def says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLossReports, "_look", lambda *_: None)
    monkeypatch.setattr(DataLossReports, "led", lambda *_: None)


@pytest.mark.parametrize(
    ("mutant", "crashes", "first"),
    [
        (takes_power_cuts_for_kills, SINGLE, 30),
        (takes_power_cuts_for_kills, WIDE, 3),
        (takes_kills_for_power_cuts, KILLS, 0),
        (says_nothing, WIDE, 0),
    ],
)
def test_it_is_noticed_who(
    mutant: Callable[[pytest.MonkeyPatch], None], crashes: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed is one that is known to notice it, or a little before."""
    mutant(monkeypatch)
    found = (reason for seed in range(first, first + 50) if (reason := breach_of(seed, crashes)) is not None)
    assert next(found, "") in PROMISES


def breach_of(seed: int, crashes: str) -> str | None:
    """The invariant that is broken in a world, if any."""
    try:
        run_seed(seed, crashes)
    except AssertionError as error:
        return str(error).partition(":")[0]
    return None
