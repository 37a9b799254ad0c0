"""Clients resume soon after the leader of their partition was killed; figures: `./dev campaign client-failover`."""

from pathlib import Path
from typing import Final

import pytest

from tests.system.client_failover import Kill, row, run
from tests.system.mortal_node import Broken

pytestmark = pytest.mark.xdist_group("cluster")

LIMIT_S: Final = 14.0
LATE_S: Final = 5.0
"""Long enough to detect that a leader is replaced late."""


def test_clients_go_on_soon_after_kills_of_the_leader(tmp_path: Path) -> None:
    kills = run(tmp_path, "penstock", 3, limit_s=LIMIT_S)
    assert len(kills) == 3
    assert all(0.0 < each.acked_s < LIMIT_S and 0.0 < each.read_s < LIMIT_S for each in kills), kills


def test_a_leader_that_is_replaced_late_is_found(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="nothing that was sent after the kill was acknowledged"):
        run(tmp_path, "penstock", 1, limit_s=LATE_S, plant="fence-late")


def test_a_row_has_both_clients() -> None:
    kills = [Kill(0.25, 0.5, was_controller=True), Kill(1.0, 2.0, was_controller=False)]
    assert row("Penstock", kills) == "| Penstock | 2 | 1 | 1.00 | 1.00 | 1.00 | 1.00 | 2.00 | 2.00 | 2.00 |"
