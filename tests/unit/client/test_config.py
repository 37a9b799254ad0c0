"""Settings under the names of Kafka's Java clients become options of this client; what is unknown is refused."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client, ClientPorts, Codec, ConfigError
from penstock.client.bootstrap import Address
from penstock.client.configuration.config import ConfigSource, options_from, read_config
from penstock.client.connection.login import Credentials
from penstock.testing.plugin import Kafka
from tests.certificates import Authority
from tests.unit.client.brokers import Brokers, play

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";'


def test_a_file_as_kafkas_tools_take_it(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "client.properties").write_text(
        "# who we are\nbootstrap.servers=a:1, b:2\nclient.id = billing\nrequest.timeout.ms: 7000\n"
        "default.api.timeout.ms=8000\nsocket.connection.setup.timeout.ms=900\n"
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={LOGIN}\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\nssl.truststore.type=PEM\n"
        "acks=1\nlinger.ms=5\ncompression.type=zstd\nenable.idempotence=false\nbatch.size=1000\n"
        "buffer.memory=2000\nmax.block.ms=3000\nmax.request.size=4000\ndelivery.timeout.ms=5000\n"
    )
    bootstrap, options = options_from(tmp_path / "client.properties")
    assert bootstrap == "a:1, b:2"
    context = options.pop("tls", None)
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1
    assert options == {
        "client_id": "billing",
        "request_timeout_ms": 7000,
        "timeout_ms": 8000,
        "connect_timeout_ms": 900,
        "sasl": Credentials("SCRAM-SHA-512", "alice", "secret"),
        "producer": {
            "acks": 1,
            "linger_ms": 5,
            "codec": Codec.ZSTD,
            "is_idempotent": False,
            "batch_bytes": 1000,
            "buffer_bytes_max": 2000,
            "block_ms_max": 3000,
            "request_bytes_max": 4000,
            "delivery_timeout_ms": 5000,
        },
    }


def test_a_mapping_may_have_numbers_and_truths() -> None:
    given: ConfigSource = {"linger.ms": 5, "enable.idempotence": True, "client.id": "billing"}
    assert read_config(given) == {"linger.ms": "5", "enable.idempotence": "true", "client.id": "billing"}
    assert options_from(given) == (
        None,
        {"client_id": "billing", "producer": {"linger_ms": 5, "is_idempotent": True}},
    )


def test_arguments_win() -> None:
    config: ConfigSource = {
        "bootstrap.servers": "broker-9",
        "client.id": "file",
        "default.api.timeout.ms": 1,
        "request.timeout.ms": 2,
        "linger.ms": 3,
        "acks": "1",
    }

    async def story(ports: ClientPorts) -> None:
        async with Client(config=config, ports=ports) as client:
            assert client.cluster.bootstrap == (Address("broker-9", 9092),)
            assert (client.cluster.timeout_ms, client.cluster.request_timeout_ms) == (1, 2)
            assert client._producer_options == {"linger_ms": 3, "acks": 1}
        async with Client(
            "broker-0",
            config=config,
            ports=ports,
            timeout_ms=60_000,
            request_timeout_ms=30_000,
            producer={"acks": "all"},
        ) as client:
            assert client.cluster.bootstrap == (Address("broker-0", 9092),)
            assert (client.cluster.timeout_ms, client.cluster.request_timeout_ms) == (60_000, 30_000)
            assert client._producer_options == {"linger_ms": 3, "acks": "all"}
            assert await client.topics() == []

    play(Brokers(), story)


def test_a_node_is_reached_with_a_file(kafka: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={kafka.bootstrap}\nsecurity.protocol=PLAINTEXT\ncompression.type=lz4\n")
    topic = kafka.create("t")
    for source in (path, str(path), read_config(path)):
        with Client.blocking(config=source) as client:
            client.publish(topic, "x")
    assert len(list(kafka.client.consume(topic, until_end=True))) == 3


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"bootstrap.server": "a"}, "bootstrap.server is not a setting of this client: did you mean bootstrap.servers?"),
    ({"ssl.trust.store.location": "a"}, "did you mean ssl.truststore.location?"),
    ({"frobnicate": "a"}, "frobnicate is not a setting of this client: known are bootstrap.servers, client.id"),
    ({"group.id": "g"}, "group.id has no effect on this client: pass group to consume"),
    ({"sasl.username": "g"}, "sasl.username has no effect on this client: the login is sasl.jaas.config="),
    ({"transactional.id": "g"}, "this client has no transactions yet"),
    ({"request.timeout.ms": "soon"}, "request.timeout.ms must be a number from 1 to 2147483647, not 'soon'"),
    ({"linger.ms": -1}, "linger.ms must be a number from 0 to 2147483647, not '-1'"),
    ({"compression.type": "rar"}, "compression.type must be one of none, gzip, snappy, lz4, zstd, not 'rar'"),
    ({"acks": "2"}, "acks must be all, 1 or 0, not '2'"),
    ({"enable.idempotence": "yes"}, "enable.idempotence must be one of true, false, not 'yes'"),
    ({"security.protocol": "TLS"}, "security.protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not TLS"),
    ({"security.protocol": "SASL_SSL"}, "config: sasl.mechanism is one of PLAIN"),
    ({"security.protocol": "SSL", "ssl.truststore.location": "/none"}, "ssl.truststore.location: /none cannot be read"),
    ({"sasl.jaas.config": LOGIN}, "sasl.jaas.config has no effect: security.protocol is PLAINTEXT, which has no login"),
    ({"ssl.truststore.location": "x"}, "ssl.truststore.location has no effect: security.protocol is PLAINTEXT"),
)


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_what_is_wrong_is_said(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        options_from(settings)
    assert str(wrong.value).startswith("config: ")
    assert sentence in str(wrong.value)
    assert "secret" not in str(wrong.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties cannot be read \(No such file or directory\): check"):
        read_config(tmp_path / "none.properties")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a text in UTF-8"):
        read_config(tmp_path / "binary")


def test_values_of_a_wrong_type() -> None:
    wrong: Any = {"linger.ms": 0.5}
    with pytest.raises(TypeError, match=r"linger\.ms must be str, int or bool, not 0\.5 \(float\)"):
        read_config(wrong)
    wrong = 3
    with pytest.raises(TypeError, match="config must be the path of a file or a mapping, not 3"):
        read_config(wrong)
