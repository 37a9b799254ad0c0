"""The real server under kills and power cuts with librdkafka's load; in short (`./dev campaign crashes`)."""

import socket
from pathlib import Path

import pytest

from harness.ports import free_port
from tests.system.crash import KILLS, POWER_CUTS, run_crashes

pytestmark = pytest.mark.peers

CRASHES = 10
ENOUGH_RECORDS = 100


@pytest.mark.parametrize("kind", [KILLS, POWER_CUTS])
def test_no_crash_loses_or_doubles_what_was_acknowledged(kind: str, tmp_path: Path) -> None:
    outcome = run_crashes(tmp_path, kind, CRASHES, seed=7)
    assert outcome.is_clean, outcome.text()
    counts = outcome.report.counts
    assert outcome.crashes == CRASHES
    assert counts.records_sent == counts.records_acked == counts.records_read > CRASHES * ENOUGH_RECORDS


@pytest.mark.parametrize(
    ("kind", "plant", "crashes_max"),
    [
        (POWER_CUTS, "ack-before-sync", 15),  # ends with the first one that is detected at once
        (POWER_CUTS, "forget-names", 25),
        (KILLS, "forget-producers", 12),  # about every second kill shows it
        (KILLS, "give-ids-again", 12),
    ],
)
def test_a_planted_bug_is_found(kind: str, plant: str, crashes_max: int, tmp_path: Path) -> None:
    outcome = run_crashes(tmp_path, kind, crashes_max, seed=5, plant=plant)
    assert not outcome.is_clean, outcome.text()


def test_a_port_stays_taken_while_nobody_listens() -> None:
    port = free_port()
    with socket.socket() as another, pytest.raises(OSError):  # noqa: PT011 - whatever the system calls it
        another.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)):  # as nodes do
        pass
