"""Apache Kafka behind TLS and logins, reached with the connector's settings."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.answerer import Answerer, Failed
from harness.spark.topics import numbers
from penstock.client.blocking import SyncClient
from penstock.spark.options import batch_options
from penstock.spark.survey import Survey
from tests.spark.secured_kafka import PASSWORD, PLAIN, SCRAM, SecuredKafka

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

TOPIC = "secured"
ALICE = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN} username="alice" password="alice-secret";',
}
BOB = {"kafka.sasl.jaas.config": f'{SCRAM} username="bob" password="bob-secret";'}


@pytest.fixture(scope="module")
def filled(kafka: SecuredKafka) -> SecuredKafka:
    """A broker with a topic of twenty numbers."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
    with SyncClient(kafka.bootstrap) as client:
        for number in range(20):
            client.publish(TOPIC, b"%d" % number, partition=number % 2)
    return kafka


@pytest.fixture(scope="module")
def trusted(filled: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The authority in a JKS store, the most common format."""
    directory = tmp_path_factory.mktemp("stores")
    (directory / "authority.pem").write_text(filled.authority.pem)
    store = directory / "trust.jks"
    command = ["keytool", "-importcert", "-noprompt", "-storetype", "JKS", "-alias", "authority"]
    command += ["-file", str(directory / "authority.pem"), "-keystore", str(store), "-storepass", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    return {"kafka.ssl.truststore.location": str(store), "kafka.ssl.truststore.password": PASSWORD}


def options_of(kafka: SecuredKafka, door: str, protocol: str, **options: str) -> dict[str, str]:
    address = kafka.doors[door]
    return {"kafka.bootstrap.servers": address, "subscribe": TOPIC, "kafka.security.protocol": protocol, **options}


def read(spark: Answerer, options: dict[str, str]) -> list[int]:
    return numbers(spark.ask("read", format="penstock", options=options)["rows"])


def test_tls(spark: Answerer, filled: SecuredKafka, trusted: dict[str, str]) -> None:
    options = options_of(filled, "TLS", "SSL", **trusted)
    assert read(spark, options) == list(range(20))
    theirs = spark.ask("read", format="kafka", options=options)["rows"]
    assert numbers(theirs) == list(range(20)), "the connector is content with the same settings"


def test_tls_with_a_certificate_of_our_own(
    spark: Answerer, filled: SecuredKafka, trusted: dict[str, str], tmp_path: Path
) -> None:
    client = filled.authority.identity("client", host=None, address=None)
    (tmp_path / "own.p12").write_bytes(client.pkcs12(PASSWORD))
    own = {"kafka.ssl.keystore.location": str(tmp_path / "own.p12"), "kafka.ssl.keystore.password": PASSWORD}
    assert read(spark, options_of(filled, "MUTUAL", "SSL", **trusted, **own)) == list(range(20))
    with pytest.raises(Failed, match="it may want a certificate of the client"):
        read(spark, options_of(filled, "MUTUAL", "SSL", **trusted))


@pytest.mark.parametrize("door", ["LOGIN", "BOTH"])
@pytest.mark.parametrize(
    "login", [ALICE, {**BOB, "kafka.sasl.mechanism": "SCRAM-SHA-256"}, {**BOB, "kafka.sasl.mechanism": "SCRAM-SHA-512"}]
)
def test_a_login_with_and_without_tls(
    spark: Answerer, filled: SecuredKafka, trusted: dict[str, str], door: str, login: dict[str, str]
) -> None:
    protocol = "SASL_SSL" if door == "BOTH" else "SASL_PLAINTEXT"
    trust = trusted if door == "BOTH" else {}
    assert read(spark, options_of(filled, door, protocol, **login, **trust)) == list(range(20))


def test_who_is_not_let_in_is_told_why(spark: Answerer, filled: SecuredKafka, trusted: dict[str, str]) -> None:
    wrong = {**ALICE, "kafka.sasl.jaas.config": f'{PLAIN} username="alice" password="not-hers";'}
    with pytest.raises(Failed, match="refuses the login of alice: Authentication failed") as told:
        read(spark, options_of(filled, "LOGIN", "SASL_PLAINTEXT", **wrong))
    assert "not-hers" not in str(told.value)
    with pytest.raises(Failed, match="does the client know the authority"):
        read(spark, options_of(filled, "TLS", "SSL"))
    with pytest.raises(Failed, match=r"it may want TLS|speaks TLS"):
        read(spark, options_of(filled, "TLS", "PLAINTEXT", **{"kafka.request.timeout.ms": "2000"}))


def test_who_may_not_ask_for_sizes_weighs_some_batches_instead(filled: SecuredKafka) -> None:
    options = {**options_of(filled, "LOGIN", "SASL_PLAINTEXT", **ALICE)}
    allowed = {"kafka.bootstrap.servers": filled.bootstrap, "subscribe": TOPIC}
    found = []
    for each in (options, allowed):
        with Survey(batch_options(each)) as survey:
            zero, one = survey.partitions()
            found.append(survey.sizes({zero: (0, 10), one: (0, 5)}))
    weighed, told = found
    assert weighed == told
    assert 10 * 61 < weighed[zero] < 10 * 100
