"""Prometheus files: rules fire when they should, and every query returns data, in a real scrape."""

import json
import re
import shutil
import urllib.request
from pathlib import Path

import pytest

from harness.ports import free_port
from penstock.server.metrics.gathering import COLLECTORS
from tests.compatibility import debian
from tests.system.commands import Shell
from tests.system.containerfile import DEPLOY
from tests.system.dashboard import FOUND_S, TOPICS, metrics_in, queries, traffic, watch
from tests.system.prometheus import PACKAGE, RULES, Prometheus, promtool
from tests.unit.server.metrics.exposition import read

pytestmark = pytest.mark.xdist_group("prometheus")

HERE = ("--dir", "c")
ON_A_KILL = {
    "NodeDown",
    "OfflinePartitions",
    "UnderMinIsrPartitionCount",
    "UnderReplicatedPartitions",
    "GroupLagUnknown",
}
DECLARED = {metric.name for collector in COLLECTORS for metric in collector.metrics}


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        debian.unpacked("promtool", PACKAGE)
    except debian.Missing as missing:
        pytest.skip(str(missing))


# --- shipped files ----------------------------------------------------------------------------------------------------


def test_rules_are_sound_and_do_what_their_test_says(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    done = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    done = promtool("test", "rules", "penstock-alerts-test.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("underminisrpartitioncount)", "underreplicatedpartitions)"),
        ("offlinepartitionscount)", "offlinepartitioncount)"),
        ("up == 0", "up == 1"),
        (" and on (job) last_over_time(penstock_info[1d])", ""),
        ("last_over_time(penstock_info[1d])", "penstock_info"),
        ("or absent(", "unless absent("),
        ("< 1e9", "< 1e8"),
        ("* 3600) < 0", "* 3600) < -1e12"),
        ("0.05 *", "0.005 *"),
        ("for: 10m", "for: 10s"),
        ("lag_seconds[5m])) > 300", "lag_seconds[5m])) > 500"),
        ("last_over_time(kafka_consumergroup_lag_seconds[5m])", "kafka_consumergroup_lag_seconds"),
        ("unknown_partitions) > 0", "unknown_partitions) > 5"),
        (',topic!~"__.*"', ""),
        ("offlinepartitionscount)", 'offlinepartitionscount{job="penstock"})'),
    ],
)
def test_a_rule_that_is_wrong_is_noticed(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    rules = tmp_path / RULES.name
    assert old in rules.read_text()
    rules.write_text(rules.read_text().replace(old, new))
    assert promtool("test", "rules", "penstock-alerts-test.yml", cwd=tmp_path).returncode != 0


def test_rules_and_dashboard_ask_for_what_there_is() -> None:
    text = "\n".join(re.findall(r"expr: (.*?)\n +(?:for|labels):", RULES.read_text(), re.DOTALL))
    assert len(metrics_in(text)) >= 10
    assert metrics_in(text) <= DECLARED
    assert metrics_in("\n".join(queries().values())) <= DECLARED


# --- a monitored cluster ----------------------------------------------------------------------------------------------


def test_a_real_prometheus_watches_a_cluster(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("sandbox", "up", "--nodes", "3", "--port", str(free_port()), *HERE)
    try:
        said = json.loads(shell("sandbox", "status", "-o", "json", *HERE))
        pages = {node["node"]: node["metrics"] for node in said["nodes"]}
        targets = [re.sub(r"http://(.*)/metrics", r"\1", page) for page in pages.values()]
        with Prometheus(tmp_path, targets) as prometheus:
            for name, least, replicas in TOPICS:
                partitions = ("-p", "6", "-r", str(replicas), "-c", f"min.insync.replicas={least}")
                shell("topic", "create", name, *partitions, "-b", said["bootstrap"])
            with traffic(said["bootstrap"]) as written:
                watch(prometheus, queries())
            check_truth(prometheus, list(pages.values()), written[0])
            prometheus.until(lambda: not prometheus.firing() & ON_A_KILL, FOUND_S)
            shell("sandbox", "kill", "3", *HERE)
            prometheus.until(lambda: prometheus.firing() >= ON_A_KILL, FOUND_S)
            offline = "max(kafka_controller_kafkacontroller_offlinepartitionscount)"
            prometheus.until(lambda: [value for _, value in prometheus.query(offline)] == [2], FOUND_S)
            unknown = "kafka_consumergroup_current_offset unless kafka_consumergroup_lag"
            prometheus.until(lambda: len(prometheus.query(unknown)) == 2, FOUND_S)
            known = "kafka_consumergroup_lag"
            prometheus.until(lambda: len(prometheus.query(known)) == 1 + 4, FOUND_S)
    finally:
        shell.run("sandbox", "down", *HERE)


def check_truth(prometheus: Prometheus, pages: list[str], written: int) -> None:
    """Checks that the metrics equal what was written, and that promtool accepts their format."""
    ends = 'sum(kafka_topic_partition_current_offset{topic="orders"})'
    counted = 'sum(kafka_server_brokertopicmetrics_messagesin_total{topic="orders"})'
    assert written > 0
    for query in (ends, counted):  # a scrape that timed out leaves a gap for a while
        prometheus.until(lambda: [value for _, value in prometheus.query(query)] == [written], FOUND_S)  # noqa: B023
    for page in pages:
        with urllib.request.urlopen(page, timeout=60) as answer:
            text = answer.read()
        read(text.decode())
        done = promtool("check", "metrics", cwd=Path.cwd(), given=text)
        complaints = [line for line in done.stderr.decode().splitlines() if not is_kafkas_way(line)]
        assert complaints == []
    assert "duplicate" not in prometheus.log


def is_kafkas_way(line: str) -> bool:
    """Metric names chosen by others, against promtool's conventions."""
    return line.startswith("kafka_")
