"""Real controllers are killed and lose power while topics come and go, and no promise is broken."""

import asyncio
from pathlib import Path

import pytest

from tests.system.quorum_kills import KILLS, POWER_CUTS, run

LIMIT_S = 150


@pytest.mark.parametrize(("kind", "count"), [(KILLS, 6), (POWER_CUTS, 4)])
def test_crashed_controllers_lose_no_metadata_and_never_lead_twice(tmp_path: Path, kind: str, count: int) -> None:
    outcome = asyncio.run(asyncio.wait_for(run(tmp_path, 3, kind, count, seed=1), LIMIT_S))
    assert outcome.made > count
    assert outcome.of_leaders > 0
    assert max(outcome.failovers_s) < 15
