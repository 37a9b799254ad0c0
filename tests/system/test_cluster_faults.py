"""A cluster of real processes under real faults, in short; `./dev campaign cluster-faults` runs long campaigns."""

from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from harness.load import Writer
from penstock.model.errors import ErrorCode
from tests.system import cluster_faults, wide_cuts
from tests.system.cluster_faults import ALL_KILLS, CUTS, KILLS, ONE_CUTS, PAUSES, POWER_CUTS, ROTS, WHOLE_S, run
from tests.system.mortal_node import Broken
from tests.system.witness import Fate, fates_in, unexplained

pytestmark = pytest.mark.xdist_group("cluster")

SECOND: Final = 1_000_000_000
TRIES: Final = 6


@pytest.mark.parametrize(("kind", "count"), [(KILLS, 5), (POWER_CUTS, 2), (CUTS, 2), (PAUSES, 2)])
def test_nothing_is_lost(kind: str, count: int, tmp_path: Path) -> None:
    outcome = run(tmp_path, kind, count, seed=7, rate=600.0, java_rate=200.0)
    assert outcome.is_clean, outcome.text()
    assert outcome.faults == count
    assert outcome.report.counts.records_acked > 1_000


@pytest.mark.parametrize(("kind", "plant"), [(KILLS, "commit-alone"), (POWER_CUTS, "ack-before-sync")])
def test_a_planted_bug_is_found(kind: str, plant: str, tmp_path: Path) -> None:
    """A fault has to hit the moment in which the bug shows, which is rarer on a busy machine."""
    for seed in range(7, 7 + TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            outcome = run(directory, kind, 6, seed=seed, plant=plant)
        except Broken:
            return
        if not outcome.is_clean:
            return
    pytest.fail(f"nobody has noticed {plant}")


def test_an_end_that_goes_back_is_found(tmp_path: Path) -> None:
    outcome = run(tmp_path, KILLS, 1, seed=7, rate=600.0, java_rate=200.0, plant="tell-an-old-end")
    assert "The latest offset of" in outcome.text(), outcome.text()


def test_with_replicated_durability_one_power_cut_after_the_other_loses_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, ONE_CUTS, 2, seed=7, rate=600.0, java_rate=200.0)
    assert outcome.is_clean, outcome.text()


def test_with_replicated_durability_a_wider_loss_is_reported(tmp_path: Path) -> None:
    outcome = wide_cuts.run(tmp_path, 1, seed=7, rate=600.0, java_rate=None, shapes=["all at once"])
    assert outcome.is_clean, outcome.text()
    assert outcome.more["lost"] > 0
    assert outcome.more["partitions_reported"] > 0


def test_a_loss_that_nobody_reports_is_found(tmp_path: Path) -> None:
    plant = "keep-losses-quiet"
    outcome = wide_cuts.run(tmp_path, 1, seed=7, plant=plant, rate=600.0, java_rate=None, shapes=["all at once"])
    assert any("nobody has said so" in each for each in outcome.problems), outcome.text()


def test_with_replicated_durability_kills_of_all_processes_lose_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, ALL_KILLS, 2, seed=7, rate=600.0, java_rate=200.0, writable_s_max=WHOLE_S)
    assert outcome.is_clean, outcome.text()
    assert outcome.more["writable_after_ms_max"] > 0


@pytest.mark.parametrize("plant", ["distrust-kills", "cut-what-is-not-synced"])
def test_what_a_kill_of_all_processes_must_not_do_is_found(
    plant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_faults, "WHOLE_S", 20.0)
    try:
        outcome = run(tmp_path, ALL_KILLS, 2, seed=7, rate=600.0, java_rate=200.0, plant=plant, writable_s_max=WHOLE_S)
    except Broken:
        assert plant == "distrust-kills"
        return
    has_noticed = any("truncation detected" in each for each in outcome.problems)  # by a reader, before the comparison
    assert outcome.report.anomalies or has_noticed, outcome.text()


def test_bits_that_flip_on_one_node_lose_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, ROTS, 3, seed=7, rate=600.0, java_rate=200.0)
    assert outcome.is_clean, outcome.text()
    assert outcome.more["logs_fetched_anew"] > 0


def fate(second: int, sequence: int, code: ErrorCode, place: str = "orders-0") -> Fate:
    return Fate(second * SECOND, place, 5, 0, sequence, code)


def test_what_is_out_of_order_needs_a_reason() -> None:
    out_of_order = fate(10, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    began = fate(1, 0, ErrorCode.NONE)
    assert unexplained([began, out_of_order]) == [out_of_order]
    assert not unexplained([began, out_of_order, fate(9, 6, ErrorCode.NOT_ENOUGH_REPLICAS)])
    assert not unexplained([fate(11, 0, ErrorCode.NONE), out_of_order]), "it has overtaken the first"
    for no_reason in (
        fate(9, 8, ErrorCode.NOT_ENOUGH_REPLICAS),
        fate(9, 6, ErrorCode.MESSAGE_TOO_LARGE),
        fate(9, 6, ErrorCode.NOT_ENOUGH_REPLICAS, place="orders-1"),
        fate(900, 6, ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        assert unexplained([began, out_of_order, no_reason]) == [out_of_order]


def test_a_line_that_a_kill_cut_off_is_no_fate() -> None:
    lines = ["10 orders-0 5 0 7 45\n", "11 orders-0 5 0"]
    assert list(fates_in(lines)) == [Fate(10, "orders-0", 5, 0, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]


def test_a_fatal_error_at_the_end_is_a_problem_and_ends_no_run() -> None:
    """After a fatal error every later call of librdkafka raises it again, also a call that only cleans up."""

    class Dead:
        def purge(self) -> None:
            raise confluent_kafka.KafkaException("out of order")

    writer = Writer("w0", "127.0.0.1:1", [("orders", 0)], rate=1.0, seed=1)
    writer._producer = Dead()
    writer.give_up()
    assert writer.problems == ["w0: out of order"]
