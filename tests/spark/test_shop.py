"""The reference deployment: the tables hold exactly what was written, whatever is killed midway."""

from pathlib import Path

import pytest

from examples.shop.picture import picture
from tests.spark.shop import run_shop

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]


def test_a_shop_loses_nothing_and_earns_nothing_twice(tmp_path: Path) -> None:
    story = run_shop(tmp_path)
    assert [what for _, what in story.struck] == ["an executor is killed", "the broker is killed"]
    assert "the broker is killed" in picture(story)
