"""Parsing of `penstock.yml`; an error names its place, and the nearest valid name."""

from pathlib import Path

import pytest

from penstock.spark.project.plan import Audit, Bad, Decode, From, Lake, Policy, Project, project_of, read_project
from penstock.spark.project.sections import ProjectError, parse_yaml

WHOLE = """
version: 1
cluster:
  bootstrap: [broker-1:9092, broker-2:9092]
  kafka: {security.protocol: SASL_SSL, kafka.client.id: lake}
spark:
  master: local[2]
  checkpoints: /var/lib/penstock/checkpoints
  memory: 4g
  conf: {spark.sql.shuffle.partitions: 4}
pipelines:
  orders_lake:
    kind: lake
    from: {topic: orders, start: 2026-01-31T12:00:00Z, headers: false}
    decode: {key: text, value: json, schema: "id BIGINT, amount DOUBLE"}
    to: {delta: /lake/orders, partition_by: [day], file_size: 256 MB, compact: {after: 2 hours}}
    trigger: 1 minute
    max_batch: 2 GB
    on_bad_record: {dlq: orders.dlq}
    on_gap: skip
  orders_audit:
    kind: audit
    of: orders_lake
    to: {delta: lake/audit}
"""
SHORT = """
pipelines:
  all:
    kind: lake
    from: {topic: orders}
    to: {delta: lake/orders}
"""


def project(text: str, path: Path = Path("/project/penstock.yml")) -> Project:
    return project_of(parse_yaml(text, str(path)), path)


def test_a_whole_file() -> None:
    found = project(WHOLE)
    assert found.cluster.bootstrap == "broker-1:9092,broker-2:9092"
    assert found.cluster.kafka == {"security.protocol": "SASL_SSL", "client.id": "lake"}
    assert found.spark.conf == {"spark.sql.shuffle.partitions": "4"}
    assert found.checkpoint("orders_lake") == Path("/var/lib/penstock/checkpoints/orders_lake")
    lake = found.pipelines["orders_lake"]
    assert isinstance(lake, Lake)
    assert lake.source == From("orders", "1769860800000", has_headers=False, group="orders_lake")
    assert lake.decode == Decode("text", "json", "id BIGINT, amount DOUBLE")
    assert (lake.trigger_ms, lake.batch_bytes_max) == (60_000, 2 << 30)
    assert (lake.on_bad_record, lake.on_gap) == (Policy(Bad.DLQ, "orders.dlq"), Policy(Bad.SKIP))
    assert (lake.target.uri, lake.target.is_by_day, lake.target.file_bytes) == ("/lake/orders", True, 256 << 20)
    assert lake.target.compact.quiet_ms == 7_200_000
    assert found.pipelines["orders_audit"] == Audit("orders_audit", "orders_lake", "/project/lake/audit", 3_600_000)


def test_little_need_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "somewhere:1234")
    found = project(SHORT)
    lake = found.lake("all")
    assert found.cluster.bootstrap == "somewhere:1234"
    assert found.checkpoint("all") == Path("/project/.penstock/checkpoints/all")
    assert lake.source == From("orders", "earliest", has_headers=True, group="all")
    assert lake.target.uri == "/project/lake/orders"
    assert (lake.on_bad_record, lake.decode.can_fail) == (Policy(Bad.FAIL), False)


@pytest.mark.parametrize(("said", "group"), [("billing", "billing"), ("none", None)])
def test_the_group_that_shows_the_lag_can_be_another_or_none(said: str, group: str | None) -> None:
    assert project(SHORT.replace("topic: orders", f"topic: orders, group: {said}")).lake("all").source.group == group


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("trigger:", "tigger:", "pipelines.orders_lake has no key tigger: did you mean trigger?"),
        ("checkpoints:", "checkpoint:", "did you mean checkpoints?"),
        ("pipelines:", "pipeline:", "penstock.yml has no key pipeline: did you mean pipelines?"),
        ("kind: lake", "kind: lakes", "pipelines.orders_lake.kind cannot be lakes: did you mean lake?"),
        ("kind: lake", "kind: cdc", "cdc is not built yet; lake and audit are"),
        ("    kind: lake\n", "", "pipelines.orders_lake lacks kind"),
        ("version: 1", "version: 2", "is of version 2, and this is for version 1"),
        (
            "1 minute",
            "60",
            "pipelines.orders_lake.trigger: expected a time such as 10 seconds or 1 minute, with its unit",
        ),
        ("2 GB", "2 GX", "pipelines.orders_lake.max_batch: expected a size such as 512 MB"),
        ("2 GB", "0 GB", "max_batch must be more than nothing"),
        ("2026-01-31T12:00:00Z", "yesterday", "from.start: expected earliest, latest, or a moment"),
        ("topic: orders,", "", "pipelines.orders_lake.from lacks topic"),
        ("topic: orders,", "topic: or ders,", "cannot be the name of a topic"),
        ("value: json", "value: jsno", "decode.value cannot be jsno: did you mean json?"),
        ("value: json", "value: registry", "registry is not built yet"),
        ("value: json, ", "", "decode.schema goes with value: json"),
        ("[day]", "[hour]", "partition_by is [day], or [] for none"),
        ("256 MB", "256 KB", "file_size lies between 1 MB and 4 GB"),
        ("{dlq: orders.dlq}", "dlq", "on_bad_record must name the topic: {dlq: orders_lake.dlq}"),
        ("{dlq: orders.dlq}", "{dlq: orders}", "would go round in a circle"),
        ("on_gap: skip", "on_gap: skpi", "on_gap cannot be skpi: did you mean skip?"),
        ("memory: 4g", "memory: 4 gigabytes", "written as Java does"),
        ("/var/lib/penstock/checkpoints", "s3://bucket/checkpoints", "must be a directory of the driver"),
        ("broker-1:9092", "http://broker-1:9092", "without a scheme"),
        ("of: orders_lake", "of: order_lake", "has no pipeline order_lake: did you mean orders_lake?"),
        ("of: orders_lake", "of: orders_audit", "orders_audit is no lake"),
        ("lake/audit", "/lake/orders", "orders_lake and orders_audit write to the same table"),
        ("orders_audit:", "orders_lake:", "has orders_lake twice"),
        ("memory: 4g", "memory: [4g", "is not YAML (line 10"),
        ("memory: 4g", "memory: ${NOT_SET_ANYWHERE}", "asks for the variable NOT_SET_ANYWHERE, which is not set"),
    ],
)
def test_what_cannot_be_meant(old: str, new: str, told: str) -> None:
    assert old in WHOLE
    with pytest.raises(ProjectError) as error:
        project(WHOLE.replace(old, new, 1))
    assert told in str(error.value)


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "pass: word")
    found = project(WHOLE.replace("SASL_SSL", "'${LAKE_PASSWORD}'"))
    assert found.cluster.kafka["security.protocol"] == "pass: word"


def test_yaml_decides_nothing() -> None:
    """In YAML itself, `no` is false, 1.10 a number, and 12:30 seven hundred and fifty."""
    assert parse_yaml("[no, 1.10, 12:30, 2026-01-31, null]", "x") == ["no", "1.10", "12:30", "2026-01-31", "null"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"There is no .*penstock.yml: `penstock spark init` writes one"):
        read_project(tmp_path / "penstock.yml")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text("")
    with pytest.raises(ProjectError, match=r"must hold keys, such as version, not nothing"):
        read_project(tmp_path / "penstock.yml")
