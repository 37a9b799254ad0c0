"""Wrong schemas, settings, logins and topics are found before a run, each with its fix."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.errors import LoginFailed, NotTrusted
from penstock.model.findings import Finding
from penstock.spark.project.plan import Project, project_of
from penstock.spark.project.sections import parse_yaml
from penstock.spark.running import cluster_checks
from penstock.testing.plugin import Kafka

FILE = """
cluster: {bootstrap: [BOOTSTRAP], kafka: {KAFKA}}
pipelines:
  orders_lake:
    kind: lake
    from: {topic: TOPIC}
    decode: {DECODE}
    to: {delta: lake}
    on_bad_record: BAD
"""
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'
LOGIN = f"security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.jaas.config: '{JAAS}'"


def project(
    bootstrap: str = "127.0.0.1:1",
    topic: str = "orders",
    kafka: str = "",
    decode: str = "value: none",
    bad: str = "{dlq: TOPIC.dlq}",
) -> Project:
    text = FILE.replace("BAD", bad).replace("BOOTSTRAP", bootstrap).replace("TOPIC", topic)
    text = text.replace("KAFKA", kafka).replace("DECODE", decode)
    return project_of(parse_yaml(text, "penstock.yml"), Path("penstock.yml"))


def findings_of(whole: Project, *, reads_records: bool = False) -> dict[str, Finding]:
    found = cluster_checks.cluster_findings(whole, [whole.lake("orders_lake")], reads_records=reads_records)
    return {each.check: each for each in found}


def assert_wrong(finding: Finding, found: str, fix: str) -> None:
    assert not finding.is_well
    assert found in finding.found
    assert fix in (finding.fix or "")


# --- the schema


def test_schemas() -> None:
    assert "its values stay bytes" in cluster_checks.schema_finding(project().lake("orders_lake")).found
    good = project(decode='value: json, schema: "id BIGINT, amount DOUBLE"').lake("orders_lake")
    assert cluster_checks.schema_finding(good).found == "orders_lake decodes id, amount"
    bad = project(decode='value: json, schema: "id BIGNIT"').lake("orders_lake")
    assert_wrong(cluster_checks.schema_finding(bad), "did you mean BIGINT?", "correct decode.schema of orders_lake")


# --- the cluster


def test_a_cluster_that_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_checks, "TIMEOUT_MS", 500)
    assert_wrong(findings_of(project())["cluster"], "127.0.0.1:1", "penstock dev")


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_cluster_that_says_nothing(monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    monkeypatch.setattr(cluster_checks, "LIMIT_S", 0.5)
    assert_wrong(findings_of(project(silent))["cluster"], "no broker answered within 0.5 s", "penstock dev")


def test_topics(kafka: Kafka) -> None:
    name = kafka.create("orders", 2)
    whole = project(kafka.bootstrap, name)
    cluster, login, topic, letters = cluster_checks.cluster_findings(whole, [whole.lake("orders_lake")])
    assert cluster.is_well
    assert login.found == "none, not encrypted"
    assert topic.found == f"orders_lake reads {name}, which has 2 partitions"
    assert letters.found == f"{name}.dlq will be made"
    other = project(kafka.bootstrap, f"{name}s")
    _, _, missing, _ = cluster_checks.cluster_findings(other, [other.lake("orders_lake")], reads_records=True)
    assert_wrong(missing, f"did you mean {name}?", "penstock topic create")


# --- the login


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("security.protocol: SASL", "kafka.security.protocol is one of PLAINTEXT, SSL"),
        ("sasl.jass.config: x", "There is no option kafka.sasl.jass.config: did you mean kafka.sasl.jaas.config?"),
        ("request.timeout.ms: soon", "kafka.request.timeout.ms"),
        ("security.protocol: SASL_SSL, sasl.mechanism: PLAIN", "Set kafka.sasl.jaas.config to the login"),
        ("security.protocol: SSL, ssl.truststore.location: /not/there.pem", "/not/there.pem cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_found_without_a_broker(settings: str, found: str) -> None:
    (only,) = findings_of(project(kafka=settings)).values()
    assert_wrong(only, found, "correct cluster.kafka in the file")


def test_a_login_at_a_broker_that_has_none(kafka: Kafka) -> None:
    """The broker is reached, and the credentials are not accepted."""
    found = findings_of(project(kafka.bootstrap, kafka=LOGIN))
    (only,) = found.values()
    assert not only.is_well


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (LoginFailed("the broker does not accept the password of alice."), "correct sasl.mechanism and sasl.jaas"),
        (NotTrusted("the certificate is for another name."), "correct security.protocol and ssl.truststore"),
    ],
)
def test_credentials_that_are_refused(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, error: Exception, fix: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cluster_checks, "connect", refused)
    (only,) = findings_of(project(kafka.bootstrap, kafka=LOGIN)).values()
    assert only.check == "login"
    assert_wrong(only, str(error).rstrip("."), fix)


# --- records


@pytest.fixture
def orders(kafka: Kafka) -> str:
    """Five records; the last is not JSON."""
    name = kafka.create("orders")
    for number in range(4):
        kafka.client.publish(name, json.dumps({"id": number}))
    kafka.client.publish(name, b"{", headers={"trace": b"1"})
    return name


def records(kafka: Kafka, topic: str, schema: str, bad: str = "skip") -> Finding:
    whole = project(kafka.bootstrap, topic, decode=f'value: json, schema: "{schema}"', bad=bad)
    return findings_of(whole, reads_records=True)["records"]


def test_records_that_fit(kafka: Kafka, orders: str) -> None:
    found = records(kafka, orders, "id BIGINT")
    assert found.is_well
    assert f"1 of the first 5 of {orders} are bad: the value is not JSON" in found.found
    assert "(partition 0, offset 4)" in found.found


def test_bad_records_that_would_stop_the_pipeline(kafka: Kafka, orders: str) -> None:
    assert_wrong(records(kafka, orders, "id BIGINT", "fail"), "which stops orders_lake", "set on_bad_record")


def test_a_schema_of_another_topic(kafka: Kafka, orders: str) -> None:
    found = records(kafka, orders, "order_id BIGINT, city STRING")
    assert_wrong(found, f"none of the first 5 of {orders} can be decoded", f"`penstock spark init -t {orders}`")


def test_a_topic_without_records(kafka: Kafka) -> None:
    assert records(kafka, kafka.create("empty"), "id BIGINT").is_well
