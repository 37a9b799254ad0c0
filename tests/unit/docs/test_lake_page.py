"""The `penstock.yml` of docs/lake.md is one, and describes the pipelines that the page is about."""

import re
from pathlib import Path

import pytest

from penstock.spark.project.plan import read_project
from penstock.testing.plugin import Kafka
from tests.fenced import blocks_of
from tests.unit.cli.conftest import Penstock, penstock

__all__ = ["penstock"]

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="lake" password="hush";'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (block,) = [each for each in blocks_of("docs/lake.md") if each.language == "yaml"]
    path = tmp_path / "penstock.yml"
    path.write_text(block.text)
    monkeypatch.setenv("LAKE_LOGIN", LOGIN)
    return path


def test_it_can_be_read(file: Path) -> None:
    project = read_project(file)
    assert list(project.pipelines) == ["orders_lake", "orders_audit"]
    assert project.lake("orders_lake").on_bad_record.topic == "orders.dlq"
    assert project.cluster.kafka["sasl.jaas.config"] == LOGIN


@pytest.mark.parametrize(("name", "told"), [("orders_lake", "go to orders.dlq"), ("orders_audit", "every 1 hour")])
def test_its_pipelines_can_be_explained(file: Path, kafka: Kafka, penstock: Penstock, name: str, told: str) -> None:
    text = re.sub(r"(?m)^  bootstrap: .*\n  kafka: .*", f"  bootstrap: ['{kafka.bootstrap}']", file.read_text())
    file.write_text(text)
    kafka.client.create_topic("orders", exist_ok=True)
    result = penstock("spark", "explain", name)
    assert (result.code, result.err) == (0, "")
    assert told in result.out
