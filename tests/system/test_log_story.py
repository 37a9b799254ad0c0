"""A leader is killed: the logs of the others describe it briefly and in order. Without events they are silent."""

from pathlib import Path

import pytest

from tests.system import log_story, steady_log

pytestmark = pytest.mark.xdist_group("cluster")


def test_the_logs_of_a_killed_leader_are_a_short_story(tmp_path: Path) -> None:
    story = log_story.tell(tmp_path)
    assert 0 < story.lines <= log_story.LINES_MAX, story.without
    assert story.without[story.killed] == [], "it was killed, and says nothing any more"
    (leader,) = [node for node in story.without if "leaders-changed" in story.events(node)]
    order = ["quorum-candidate", "quorum-leader", "controller-active", "broker-fenced", "leaders-changed"]
    # On a busy machine a first vote may be split: only the first event of each kind counts.
    assert list(dict.fromkeys(event for event in story.events(leader) if event in order)) == order
    (other,) = {*story.without} - {leader, story.killed}
    assert {"quorum-vote", "quorum-follows"} <= {*story.events(other)}, "nobody is elected without its vote"
    assert any("broker-unfenced" in line for lines in story.after.values() for line in lines)


def test_a_steady_load_is_no_news(tmp_path: Path) -> None:
    steady = steady_log.run(tmp_path, 20.0)
    assert steady.written > 0
    assert steady.read > 0
    assert len(steady.lines) <= steady_log.LINES_MAX, steady.lines
