"""A sample of the requests built to cost the most; `./dev campaign budgets` sends all of them."""

import argparse
from pathlib import Path

import pytest

from tests.system.hostile_requests import Sent, a_target, cases_of, frame_of, measure, routes, run, topic_id_of

SHARE = 0.02


def test_no_request_takes_the_node(tmp_path: Path) -> None:
    """The sample is fixed: a failure has to be repeatable."""
    arguments = argparse.Namespace(
        apis="", last=True, share=SHARE, seed=7, tries=5, no_siege=True, verbose=False, record=False
    )
    sent = run(arguments, tmp_path).sent
    assert len(sent) > 20
    assert [str(each) for each in sent if each.faults] == []


def test_the_harness_notices_what_costs_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node gets a budget that limits nothing."""
    monkeypatch.setenv("HOSTILE_NODE_ELEMENTS", "10000000")
    monkeypatch.setenv("HOSTILE_NODE_MEMORY_BYTES", "10000000000")
    with a_target(tmp_path) as target:
        route, _ = routes()[3]
        sizes = (15 * 1024 * 1024,)
        (case,) = [
            each
            for each in cases_of(route, 12, is_for_controller=False, topic_id=topic_id_of(target), sizes=sizes)
            if each.name == "topics: empty"
        ]
        sent: Sent = measure(target, case, frame_of(case), tries=1)
    assert any("memory grew" in fault for fault in sent.faults)
