"""`penstock verify` on three real nodes while one is killed: no rule is violated, unless the nodes have a bug.

`./dev campaign verify` does the same on Apache Kafka, and writes docs/results/verify.md.
"""

from pathlib import Path

import pytest

from tests.system.verify_runs import Outcome, PenstockNodes, run

pytestmark = pytest.mark.xdist_group("cluster")

SECONDS = 8.0


def verify(directory: Path, *options: str, plant: str | None = None) -> Outcome:
    with PenstockNodes(directory, plant) as nodes:
        outcome = run(nodes, directory, SECONDS, 1, *options)
    assert len(outcome.struck) == 1, "it was over before a node was killed"
    assert outcome.said["counts"]["records_acked"] > 1_000
    return outcome


def test_a_killed_leader_breaks_no_rule(tmp_path: Path) -> None:
    outcome = verify(tmp_path)
    assert (outcome.exit_code, outcome.said["verdict"], outcome.broken) == (0, "kept", {}), outcome.said
    assert outcome.said["counts"]["records_polled"] >= 4 * outcome.said["counts"]["records_acked"]
    assert not list(tmp_path.glob("*.jsonl")), "a history that nobody asked for, and nobody needs"


def test_a_bug_of_the_nodes_is_found_and_named(tmp_path: Path) -> None:
    """A leader acknowledges records that no other replica has; they are lost with it."""
    outcome = verify(tmp_path, "--settle", "10", plant="commit-alone")
    assert (outcome.exit_code, outcome.said["verdict"]) == (1, "broken")
    assert outcome.broken.keys() & {"lost-write", "unseen"}, outcome.broken
    assert {each["kind"] for each in outcome.said["findings"]} == set(outcome.broken)
    assert Path(outcome.said["history"]).exists(), "it can be looked at again"
