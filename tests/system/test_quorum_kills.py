"""Real controllers are killed and lose power while topics are created and deleted; no guarantee is violated."""

import asyncio
from pathlib import Path

import pytest

from penstock.client.errors import Refused
from tests.system.mortal_node import Broken
from tests.system.quorum_kills import FAILOVER_S, KILLS, POWER_CUTS, Quorum, run

LIMIT_S = 600


@pytest.mark.parametrize(("kind", "count"), [(KILLS, 6), (POWER_CUTS, 4)])
def test_crashed_controllers_lose_no_metadata_and_never_lead_twice(tmp_path: Path, kind: str, count: int) -> None:
    outcome = asyncio.run(asyncio.wait_for(run(tmp_path, 3, kind, count, seed=1), LIMIT_S))
    assert outcome.made > count
    assert outcome.of_leaders > 0
    assert max(outcome.failovers_s) < FAILOVER_S


def test_controllers_that_forget_are_found_out(tmp_path: Path) -> None:
    """All are killed at once; then the broker has more than they have. The last changes may not concern a topic."""
    with pytest.raises((Broken, Refused), match=r"is committed|(were|was) acknowledged"):
        asyncio.run(asyncio.wait_for(run(tmp_path, 3, KILLS, 6, seed=1, plant="forget-last-changes"), LIMIT_S))


def test_two_leaders_of_one_epoch_are_found_out(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, 3)
    for node_id, epochs in {1: (1, 4), 2: (2,), 3: (3, 4)}.items():
        lines = [
            f"2026-11-15 INFO controller: Is the active controller, in epoch {epoch}; it has begun.\n"
            for epoch in epochs
        ]
        quorum.controllers[node_id].log_path.write_text("".join(lines))
    with pytest.raises(Broken, match="epoch 4 was led by 1 and by 3"):
        quorum.check_leaders()
