"""An upgrade of three nodes, one after the other under load; `./dev campaign rolling-upgrade` runs several in a row."""

from pathlib import Path

import pytest

from harness.ports import free_port
from penstock.client.admin.features import FeaturesDescription, NodeFeatures
from penstock.verify.findings import Kind
from tests.system.cluster_faults import NODES
from tests.system.mortal_node import Broken
from tests.system.older_build import METADATA, MOST, PRESENT
from tests.system.rolling_upgrade import check_kept_out, check_levels, run

pytestmark = pytest.mark.xdist_group("cluster")


def test_nobody_notices_an_upgrade(tmp_path: Path) -> None:
    outcome = run(tmp_path, 1, seed=7, rate=600.0, java_rate=0.0)
    assert outcome.is_clean, outcome.text()
    assert (outcome.delivery_failures, outcome.raises_refused, outcome.kept_out) == (0, 1, 1)
    assert outcome.restarts == len(NODES) + 3, "one node goes back and forth, and one tries the old build again"
    assert outcome.report.counts.records_acked > 1_000


def test_a_careless_upgrade_of_nodes_with_a_bug_is_noticed(tmp_path: Path) -> None:
    """All nodes at once, leaders that wait for no follower, producers that wait for a second: records are lost."""
    outcome = run(
        tmp_path, 1, seed=7, rate=600.0, java_rate=0.0, patience_ms=1_000, plant="commit-alone", is_careless=True
    )
    assert outcome.delivery_failures, outcome.text()
    has_noticed = any("truncation detected" in each for each in outcome.problems)  # by a reader, before the comparison
    assert outcome.report.anomalies[Kind.LOST_WRITE] or has_noticed, outcome.text()


def test_an_old_build_that_is_let_in_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={tmp_path / 'data'}\n")
    with pytest.raises(Broken, match="was let in"):
        check_kept_out(file, PRESENT)
    file.write_text("no.such.setting=1\nlisteners=nonsense\n")
    with pytest.raises(Broken, match=r"ended with \d, and said"):
        check_kept_out(file, PRESENT)


def test_a_level_that_one_node_does_not_tell_is_noticed() -> None:
    told = {1: NodeFeatures({}, {METADATA: MOST}, 9), 2: NodeFeatures({}, {METADATA: MOST - 1}, 8)}
    with pytest.raises(Broken, match="node 2 says"):
        check_levels(FeaturesDescription(told), {METADATA: MOST})
