"""Spark starts with Java's shared class archive, and without it if the archive does not match."""

import subprocess
import time
from pathlib import Path

import pytest

from harness.answerer import Answerer
from harness.spark.shared_classes import archive, java_options
from harness.spark.standalone import START_TIMEOUT_S, StandaloneSpark, processes

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]


def test_all_of_a_cluster_has_them(spark: Answerer, cluster: StandaloneSpark) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while spark.ask("version")["executors"] < 2:
        assert time.monotonic() < deadline_s, cluster.log_tail()
        time.sleep(0.1)
    (driver,) = [pid for pid, parent, command in processes() if parent == spark.pid and b"java" in command]
    assert cluster.master is not None
    started = [driver, cluster.master.pid, *(worker.pid for worker in cluster.workers), *cluster.executors()]
    assert len(started) == 6
    for pid in started:
        assert str(archive()) in Path(f"/proc/{pid}/maps").read_text()


def test_a_java_with_other_jars_goes_on_without_them_and_says_nothing(tmp_path: Path) -> None:
    command = ["java", *java_options().split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "warning" not in done.stderr.lower()
