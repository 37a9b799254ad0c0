"""Records that DeleteRecords acknowledged stay deleted when leaders are killed.

`./dev campaign deletion-kills` kills many.
"""

from pathlib import Path

import pytest

from tests.system.deletion_kills import Kill, row, run
from tests.system.mortal_node import Broken

pytestmark = pytest.mark.xdist_group("cluster")


def test_deleted_records_stay_deleted_when_leaders_are_killed(tmp_path: Path) -> None:
    kills = run(tmp_path, 3)
    assert len(kills) == 3
    assert all(each.partitions and each.records for each in kills), kills
    assert [each.had_follower_down for each in kills] == [False, False, True]


def test_a_leader_that_deletes_alone_is_found(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"but .* was acknowledged"):
        run(tmp_path, 5, plant="delete-alone")


def test_a_row_adds_kills_up() -> None:
    kills = [Kill(2, 1_000, 0.04, had_follower_down=False), Kill(1, 500, 3.0, had_follower_down=True)]
    assert row(kills) == "| 2 | 1 | 3 | 1,500 | 40 | 40 | 40 | 0 |"
