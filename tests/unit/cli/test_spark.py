"""`penstock spark …` without Spark: what init writes, what check, status and explain say, and what is missing."""

import importlib.util
import json
from pathlib import Path

import pytest

from penstock.testing.plugin import Kafka
from tests.unit.cli.conftest import Penstock


def test_init_makes_all_that_a_run_needs(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("orders").replace("_", "-")
    result = penstock("spark", "init", "-t", topic, "-n", "300", "-b", kafka.bootstrap)
    assert (result.code, result.err) == (0, "")
    assert "300 sample records written" in result.out
    records = list(kafka.client.consume(topic, until_end=True))
    assert len(records) == 300
    assert sum(not (each.value or b"").endswith(b"}") for each in records) == 3, "three cannot be read"
    again = penstock("spark", "init", "-t", topic, "-b", kafka.bootstrap)
    assert again.code == 0
    assert "left as it is" in again.out
    assert len(list(kafka.client.consume(topic, until_end=True))) == 300


def test_the_file_of_init_can_be_used(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    from penstock.spark.project.plan import read_project

    penstock("spark", "init", "-t", "orders", "-n", "0", "-b", kafka.bootstrap)
    lake = read_project(tmp_path / "penstock.yml").lake("orders_lake")
    assert lake.target.uri == str(tmp_path / "lake" / "orders")
    assert lake.on_bad_record.topic == "orders.dlq"
    result = penstock("spark", "explain", "orders_lake")
    assert result.code == 0, result.err
    assert "go to orders.dlq" in result.out
    status = penstock("spark", "status", "-o", "json")
    assert json.loads(status.out)[0]["pipeline"] == "orders_lake"


def test_without_a_bootstrap_the_file_looks_for_the_broker_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.project.plan import read_project
    from penstock.spark.running.sample import template

    (tmp_path / "penstock.yml").write_text(template("orders", None))
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "there:1234")
    assert read_project(tmp_path / "penstock.yml").cluster.bootstrap == "there:1234"


def test_check_says_what_is_wrong(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    text = f"cluster: {{bootstrap: ['{kafka.bootstrap}']}}\npipelines:\n  a:\n    kind: lake\n"
    (tmp_path / "penstock.yml").write_text(f"{text}    from: {{topic: missing}}\n    to: {{delta: lake}}\n")
    result = penstock("spark", "check", "-o", "json")
    assert result.code == 1
    (topic,) = [each for each in json.loads(result.out) if each["check"] == "topic"]
    assert (topic["is_well"], topic["fix"]) == (False, "penstock topic create missing")
    assert "WRONG  topic" in penstock("spark", "check").out


@pytest.mark.parametrize("command", ["check", "run", "status", "explain"])
def test_without_the_extra_one_sentence_says_what_to_install(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name))
    result = penstock("spark", command, *(["orders_lake"] if command == "explain" else []))
    assert result.code == 1
    assert 'pip install ".[spark]" in a checkout of Penstock' in result.err
    assert result.err.count("\n") == 1


def test_no_file(penstock: Penstock) -> None:
    result = penstock("spark", "run")
    assert result.code == 1
    assert result.err.startswith("penstock: There is no penstock.yml: `penstock spark init` writes one")


def test_a_pipeline_that_is_not_there(penstock: Penstock, tmp_path: Path) -> None:
    text = "pipelines: {orders_lake: {kind: lake, from: {topic: orders}, to: {delta: lake}}}"
    (tmp_path / "penstock.yml").write_text(text)
    result = penstock("spark", "run", "order_lake")
    assert (result.code, "did you mean orders_lake?" in result.err) == (1, True)
