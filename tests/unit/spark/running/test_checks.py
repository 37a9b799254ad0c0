"""Common faults are found before Spark starts, each with its fix."""

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from penstock.model.findings import Finding
from penstock.spark.project.plan import Project, project_of
from penstock.spark.project.sections import parse_yaml
from penstock.spark.running import checks
from penstock.testing.plugin import Kafka
from tests.unit.spark.lake.tables import batch, lake_table
from tests.unit.spark.running.checkpoints import write_checkpoint

FILE = """
cluster: {bootstrap: [BOOTSTRAP]}
spark: {checkpoints: checkpoints, conf: {spark.ui.port: 4041}}
pipelines:
  orders_lake:
    kind: lake
    from: {topic: TOPIC}
    to: {delta: lake}
    on_bad_record: {dlq: TOPIC.dlq}
"""


def project(home: Path, bootstrap: str = "127.0.0.1:1", topic: str = "orders", **changes: str) -> Project:
    text = FILE.replace("BOOTSTRAP", bootstrap).replace("TOPIC", topic)
    for old, new in changes.items():
        text = text.replace(old, new)
    return project_of(parse_yaml(text, "penstock.yml"), home / "penstock.yml")


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# --- Java


def test_java_17(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert checks.java_finding().is_well


@pytest.mark.parametrize("says", ['openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_391"', "nothing of use"])
def test_an_old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    script(tmp_path / "bin" / "java", f"echo '{says}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert_wrong(checks.java_finding(), says, "install Java 17")


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_wrong(checks.java_finding(), "there is no java on the PATH", "JAVA_HOME")


# --- packages


@pytest.mark.parametrize(
    ("name", "version"), [("pandas", "3.0.1"), ("pyarrow", "17.0.0"), ("pyspark", "3.5.1"), ("deltalake", "1.2.0")]
)
def test_a_package_that_was_not_tried(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    assert checks.package_finding(name).is_well
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert_wrong(checks.package_finding(name), f"it is {version}", 'pip install ".[spark]" in a checkout of Penstock')


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert_wrong(checks.package_finding("pandas"), "not installed", 'pip install ".[spark]" in a checkout of Penstock')
    assert checks.numba_finding().is_well, "it is only slower"


# --- variables


def test_a_forgotten_spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert_wrong(checks.spark_home_finding(), str(tmp_path), "unset SPARK_HOME")


def test_workers_with_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checks.python_finding("local[2]").is_well
    monkeypatch.setenv("PYSPARK_PYTHON", script(tmp_path / "old", "echo 3.9"))
    assert_wrong(checks.python_finding("local[2]"), "is Python 3.9, and the driver is", sys.executable)
    bare = script(tmp_path / "bare", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1")
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    assert_wrong(checks.python_finding("local[2]"), "No module named 'pyarrow'", sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nothing"))
    assert_wrong(checks.python_finding("local[2]"), "does not run", sys.executable)


# --- the file


def test_settings_that_are_not_for_the_file(tmp_path: Path) -> None:
    (found,) = checks.conf_findings(project(tmp_path))
    assert found.is_well
    (ours,) = checks.conf_findings(project(tmp_path, **{"spark.ui.port": "spark.driver.memory"}))
    assert_wrong(ours, "is set by the runner", "write it as spark.memory")
    (unknown,) = checks.conf_findings(project(tmp_path, **{"spark.ui.port": "ui.port"}))
    assert_wrong(unknown, "Spark ignores", "spark.ui.port?")


def test_directories(tmp_path: Path) -> None:
    assert checks.directory_finding("table", tmp_path / "a" / "b").is_well
    (tmp_path / "file").write_text("")
    assert_wrong(checks.directory_finding("table", tmp_path / "file" / "b"), "is not a directory", "choose another")


# --- checkpoint and table


def test_a_checkpoint_and_its_table(tmp_path: Path) -> None:
    whole = project(tmp_path)
    checkpoint = write_checkpoint(whole.checkpoint("orders_lake"), "query", planned=1, done=0)
    table = lake_table(tmp_path / "lake")
    table.commit("query", batch(tmp_path / "lake", 0))
    assert checks.table_finding(checkpoint, whole.lake("orders_lake")).found == "goes on behind batch 0"
    table.commit("query", batch(tmp_path / "lake", 1))
    assert checks.table_finding(checkpoint, whole.lake("orders_lake")).is_well, "the driver died before Spark noted it"


def test_a_checkpoint_that_lost_its_table(tmp_path: Path) -> None:
    whole = project(tmp_path)
    table = lake_table(tmp_path / "lake")
    table.commit("query", batch(tmp_path / "lake", 0))
    ahead = write_checkpoint(tmp_path / "ahead", "query", planned=1, done=1)
    assert_wrong(checks.table_finding(ahead, whole.lake("orders_lake")), "lacks batch 1", "--adopt")
    far = write_checkpoint(tmp_path / "far", "query", planned=7, done=7)
    assert_wrong(checks.table_finding(far, whole.lake("orders_lake")), "lacks batches", "--adopt")
    other = write_checkpoint(tmp_path / "other", "other", planned=0, done=0)
    assert_wrong(checks.table_finding(other, whole.lake("orders_lake")), "another checkpoint", "--adopt")
    (tmp_path / "other" / "metadata").write_text("")
    assert_wrong(checks.table_finding(other, whole.lake("orders_lake")), "not what Spark writes", "--adopt")


def test_all_of_them(tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    name = kafka.topic("orders")
    kafka.client.create_topic(name)
    found = list(checks.findings(project(tmp_path, kafka.bootstrap, name)))
    assert [each for each in found if not each.is_well] == []
    assert len(found) >= 12
    assert not os.path.exists(tmp_path / "checkpoints"), "who looks changes nothing"


def assert_wrong(finding: Finding, found: str, fix: str) -> None:
    assert not finding.is_well
    assert found in finding.found
    assert fix in (finding.fix or "")
