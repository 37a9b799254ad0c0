"""Kafka's settings become a login and a TLS context; unsupported settings are reported."""

import logging
import ssl
from pathlib import Path

import pytest

from penstock.client.connection.login import Credentials
from penstock.client.connection.security import SecurityError, parse_jaas
from penstock.spark.options import OptionError
from penstock.spark.security import read_security, tls_context
from tests.certificates import Authority, Identity

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='bob' password=hunter2;"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.identity("client", host=None, address=None)


# --- logins


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (PLAIN, {"username": "alice", "password": "secret"}),
        (SCRAM, {"username": "bob", "password": "hunter2"}),
        ('\n a.B  required\n user = "x" \n debug=true ; \n', {"user": "x", "debug": "true"}),
        (
            r'a.B required password="with \"quotes\" and \\ and; semicolon";',
            {"password": 'with "quotes" and \\ and; semicolon'},
        ),
        ("""a.B REQUIRED password='it\\'s "fine"';""", {"password": 'it\'s "fine"'}),
        ("a.B required;", {}),
    ],
)
def test_jaas_as_java_reads_it(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text)[1] == options


@pytest.mark.parametrize(
    "text", ["", "a.B", "a.B maybe x=1;", 'a.B required x="1"', 'a.B required x="secret', PLAIN + PLAIN]
)
def test_what_is_not_jaas_is_refused_without_showing_the_password(text: str) -> None:
    with pytest.raises(SecurityError) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)


def test_a_login_with_and_without_tls() -> None:
    plain = read_security({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN})
    assert plain.credentials == Credentials("PLAIN", "alice", "secret")
    assert not plain.is_encrypted
    scram = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f"shaded.{SCRAM}"}
    assert read_security(scram).credentials == Credentials("SCRAM-SHA-512", "bob", "hunter2")
    assert read_security(scram).is_encrypted
    assert read_security({}).credentials is None


def test_a_login_that_is_not_used_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_security({"sasl.jaas.config": PLAIN, "sasl.mechanism": "PLAIN"}).credentials is None
    assert "security.protocol is PLAINTEXT" in caplog.text


SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"security.protocol": "TLS"}, "kafka.security.protocol is one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 here, not GSSAPI"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "not OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "Set kafka.sasl.jaas.config"),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256"}, "SCRAM-SHA-256 goes with ScramLoginModule"),
        ({**SASL, "sasl.jaas.config": "a.PlainLoginModule required username=x;"}, "lacks the username or the password"),
        (
            {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM.replace(";", " tokenauth=true;")},
            "delegation token",
        ),
    ],
)
def test_what_cannot_be_done_is_said(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_security(settings)
    assert sentence in str(refused.value)


# --- TLS


def names_trusted(context: ssl.SSLContext) -> list[object]:
    return [dict(part[0] for part in each["subject"]) for each in context.get_ca_certs()]  # type: ignore[misc]


def test_a_trust_store_in_a_file_or_in_a_setting(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "trust.pem").write_text(authority.pem)
    (tmp_path / "trust.jks").write_bytes(authority.pkcs12("changeit"))  # a wrong extension, which Java does not mind
    for settings in (
        {"ssl.truststore.certificates": authority.pem, "ssl.truststore.type": "PEM"},
        {"ssl.truststore.location": str(tmp_path / "trust.pem"), "ssl.truststore.type": "PEM"},
        {"ssl.truststore.location": str(tmp_path / "trust.jks"), "ssl.truststore.password": "changeit"},
    ):
        context = tls_context(settings)
        assert names_trusted(context) == [{"commonName": "an authority"}]
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED


def test_without_a_trust_store_the_systems_authorities_are_trusted() -> None:
    assert tls_context({}).verify_mode is ssl.CERT_REQUIRED


def test_a_name_need_not_fit_if_kafka_is_told_so(authority: Authority) -> None:
    settings = {"ssl.truststore.certificates": authority.pem, "ssl.endpoint.identification.algorithm": ""}
    context = tls_context(settings)
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_versions_are_narrowed(authority: Authority) -> None:
    settings = {"ssl.truststore.certificates": authority.pem}
    assert tls_context(settings).minimum_version is ssl.TLSVersion.TLSv1_2
    narrowed = tls_context({**settings, "ssl.enabled.protocols": "TLSv1.3, TLSv1.1"})
    assert (narrowed.minimum_version, narrowed.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)


def test_an_own_key_from_a_file_or_from_settings(authority: Authority, client: Identity, tmp_path: Path) -> None:
    (tmp_path / "own.p12").write_bytes(client.pkcs12("changeit"))
    trust = {"ssl.truststore.certificates": authority.pem}
    tls_context({**trust, "ssl.keystore.location": str(tmp_path / "own.p12"), "ssl.keystore.password": "changeit"})
    tls_context({**trust, "ssl.keystore.key": client.key_pem, "ssl.keystore.certificate.chain": client.chain_pem})
    with pytest.raises(OptionError, match="go together"):
        tls_context({**trust, "ssl.keystore.key": client.key_pem})
    other = authority.identity("other").chain_pem
    with pytest.raises(OptionError, match="cannot be used"):
        tls_context({**trust, "ssl.keystore.key": client.key_pem, "ssl.keystore.certificate.chain": other})


def test_files_that_do_not_do(authority: Authority, tmp_path: Path) -> None:
    missing = {"ssl.truststore.location": str(tmp_path / "none.jks")}
    with pytest.raises(OptionError, match="on the driver and on every executor"):
        tls_context(missing)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(OptionError, match="neither PEM nor JKS"):
        tls_context({"ssl.truststore.location": str(tmp_path / "junk")})
    (tmp_path / "trust.pem").write_text(authority.pem)
    with pytest.raises(OptionError, match="holds no key with its certificate"):
        tls_context({"ssl.keystore.location": str(tmp_path / "trust.pem")})
    with pytest.raises(OptionError, match=r"name TLSv1\.2 or TLSv1\.3"):
        tls_context({"ssl.enabled.protocols": "SSLv3"})
