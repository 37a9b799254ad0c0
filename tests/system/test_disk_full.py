"""The real server on a file system of 64 MB that is filled and freed, in short (`./dev campaign full-disks`)."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.system.disk_full import REFUSALS_WANTED, run_fills
from tests.system.small_disk import CannotMount, a_small_disk

pytestmark = pytest.mark.peers

ALL_WAYS = range(5)


@pytest.fixture(scope="module", autouse=True)
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        with a_small_disk(tmp_path_factory.mktemp("probe")):
            pass
    except CannotMount as error:
        pytest.skip(str(error))


def test_a_full_disk_is_told_served_and_recovered_from(tmp_path: Path) -> None:
    fills, report = run_fills(tmp_path, ALL_WAYS, seed=7)
    assert fills.problems == []
    assert report.is_clean, report.text()
    assert len(fills.recovery_s) == len(ALL_WAYS)
    assert fills.refusals >= len(ALL_WAYS) * REFUSALS_WANTED
    assert report.counts.records_acked == report.counts.records_read > 0
    assert fills.restarts == 2


@pytest.mark.parametrize(
    ("plant", "number", "found"),
    [
        ("fail-on-full-write", 0, "KAFKA_STORAGE_ERROR"),  # readers are not served
        ("fail-on-full-roll", 4, "KAFKA_STORAGE_ERROR"),
        ("keep-no-reserve", 1, "KAFKA_STORAGE_ERROR"),  # records cannot be deleted
    ],
)
def test_a_planted_bug_is_found(plant: str, number: int, found: str, tmp_path: Path) -> None:
    with pytest.raises((KafkaException, TimeoutError), match=found):
        run_fills(tmp_path, [number], seed=7, plant=plant)
