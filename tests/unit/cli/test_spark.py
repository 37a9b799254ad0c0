"""`penstock spark …` without Spark: files written by init, output of check, status and explain, missing packages."""

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
    assert "left as it is. The schema of its first 297:\n  order_id BIGINT, customer STRING, city" in again.out
    assert "3 are not JSON objects: they will be bad records." in again.out
    assert len(list(kafka.client.consume(topic, until_end=True))) == 300


def test_init_infers_the_schema_of_a_topic_with_other_records(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    from penstock.spark.project.plan import read_project

    topic = kafka.create("clicks.v2", 2)
    for number in range(20):
        kafka.client.publish(topic, json.dumps({"page": f"p{number}", "ms": number, 'a "b"': None}))
    result = penstock("spark", "init", "-t", topic, "-b", kafka.bootstrap)
    assert (result.code, result.err) == (0, "")
    assert f"{topic}: has records already, left as it is. The schema of its first 20:\n  page STRING" in result.out
    assert 'Left out, and not in the table: a "b" (a table cannot have the name).' in result.out
    (lake,) = (read_project(tmp_path / "penstock.yml").lake(name) for name in read_project().pipelines)
    assert (lake.source.topic, lake.decode.schema) == (topic, "page STRING, ms BIGINT")
    assert len(list(kafka.client.consume(topic, until_end=True))) == 20


def test_init_refuses_a_topic_without_json_objects(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("lines")
    kafka.produce("lines", "one")
    result = penstock("spark", "init", "-t", topic, "-b", kafka.bootstrap)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"penstock: 1 of 1 values of {topic} are not JSON objects, such as 'one' at offset 0")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "penstock.yml").exists()


def test_init_fills_a_topic_that_is_there_and_empty(penstock: Penstock, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create("empty")
    result = penstock("spark", "init", "-t", topic, "-n", "10", "-b", kafka.bootstrap)
    assert f"{topic}: 10 sample records written." in result.out
    assert 'schema: "order_id BIGINT, customer STRING' in (tmp_path / "penstock.yml").read_text()


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


@pytest.mark.parametrize("command", ["init", "check", "run", "status", "explain"])
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
