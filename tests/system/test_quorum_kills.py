"""Real controllers are killed and lose power while topics come and go, and no promise is broken."""

import asyncio
from pathlib import Path

import pytest

from penstock.client.errors import Refused
from tests.system.quorum_kills import KILLS, POWER_CUTS, Broken, run

LIMIT_S = 150


@pytest.mark.parametrize(("kind", "count"), [(KILLS, 6), (POWER_CUTS, 4)])
def test_crashed_controllers_lose_no_metadata_and_never_lead_twice(tmp_path: Path, kind: str, count: int) -> None:
    outcome = asyncio.run(asyncio.wait_for(run(tmp_path, 3, kind, count, seed=1), LIMIT_S))
    assert outcome.made > count
    assert outcome.of_leaders > 0
    assert max(outcome.failovers_s) < 15


@pytest.mark.parametrize(
    ("kind", "plant", "said"),
    [
        (KILLS, "one-voter-decides", "was led by"),
        (POWER_CUTS, "ack-before-sync", "is committed"),  # the broker knows of more than the controllers do
    ],
)
def test_a_planted_bug_is_found(tmp_path: Path, kind: str, plant: str, said: str) -> None:
    with pytest.raises((Broken, Refused), match=said):
        asyncio.run(asyncio.wait_for(run(tmp_path, 3, kind, 20, seed=1, plant=plant), LIMIT_S))
