"""A driver that is killed, and one that comes back from the dead. `campaign.py` has many of every kind."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.lake.campaign import DRIVER, PAUSE, ZOMBIE, run_kills

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("spark")]


def test_a_table_is_its_topic_whoever_is_killed_or_comes_back_from_the_dead(tmp_path: Path) -> None:
    outcome = run_kills(tmp_path, Counter({DRIVER: 1, PAUSE: 1, ZOMBIE: 1}), seed=1, is_audited=False)
    assert outcome.batches > 4
    assert outcome.bad > 0
