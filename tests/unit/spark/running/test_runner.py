"""Conditions under which all runs of a process are over."""

import pytest

from penstock.spark.running.run import State
from penstock.spark.running.runner import is_through


@pytest.mark.parametrize("is_endless", [True, False])
def test_a_run_goes_on_while_one_of_its_lakes_does(is_endless: bool) -> None:
    assert not is_through([State.FAILED, State.RUNNING], is_endless=is_endless)
    assert not is_through([State.WAITING], is_endless=is_endless)


def test_audits_alone_go_on_for_ever() -> None:
    assert not is_through([], is_endless=True)
    assert is_through([], is_endless=False)


def test_audits_do_not_hide_that_the_last_lake_has_failed() -> None:
    assert is_through([State.DONE, State.FAILED], is_endless=True)
    assert not is_through([State.DONE], is_endless=True)
