"""When a run ends by itself."""

from typing import Any, cast

import pytest

from penstock.spark.running.runner import FAILURES_MAX, FAILURES_ONCE_MAX, Run, State, is_through


class Unlucky:
    """A query that fails each time, and its stream."""

    isActive = False  # noqa: N815 - Spark's name
    failure: BaseException | None = None

    def __init__(self, sentence: str) -> None:
        self.starts = 0
        self._sentence = sentence

    def start(self, *, is_once: bool) -> "Unlucky":
        self.starts += 1
        return self

    def exception(self) -> Exception:
        return RuntimeError(self._sentence)


def starts_until_given_up(sentence: str, *, is_once: bool) -> int:
    stream = Unlucky(sentence)
    run = Run(cast("Any", None), cast("Any", stream), cast("Any", None), {}, is_once=is_once)
    for second in range(10_000):
        run.look(float(second))
        if run.state is State.FAILED:
            return stream.starts
    raise AssertionError("it was never given up")


@pytest.mark.parametrize(("is_once", "starts"), [(True, FAILURES_ONCE_MAX), (False, FAILURES_MAX)])
def test_what_fails_by_accident_is_tried_again(is_once: bool, starts: int) -> None:
    assert starts_until_given_up("Python worker failed to connect back", is_once=is_once) == starts > 1


def test_what_needs_a_person_is_not_tried_again() -> None:
    assert starts_until_given_up("penstock.spark.gaps.DataLost: records are gone", is_once=True) == 1


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
