"""A zombie driver, and a task that runs twice. `campaign.py` has many kills of every kind."""

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.lake.campaign import PAUSE, ZOMBIE, run_kills

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]


def test_a_table_is_its_topic_though_a_driver_comes_back_from_the_dead(tmp_path: Path) -> None:
    outcome = run_kills(tmp_path, Counter({PAUSE: 1, ZOMBIE: 1}), seed=1, is_audited=False)
    assert outcome.batches > 4
    assert outcome.bad > 0
