"""TLS and logins from Kafka's own settings, as a query for the connector has them.

They are `kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.mechanism` and `kafka.sasl.jaas.config`. What they ask
for is checked on the driver; files are opened where they are used, so they must lie where the executors are. Whoever is
trusted in Java is trusted here: every certificate in a trust store, be it an authority's or not.
"""

import logging
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from penstock.client.client import Credentials
from penstock.client.sasl import Mechanism
from penstock.spark.keystore import KeyStore, KeyStoreError, read_key_store
from penstock.spark.options import OptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ENTRY = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(
    r"""\s*(?P<name>[\w.]+)\s*=\s*(?P<value>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"']+)""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

log = logging.getLogger("penstock.spark")

Settings = Mapping[str, str]
"""The client's settings without their prefix."""


@dataclass(frozen=True, slots=True)
class Security:
    """Whether to encrypt, and as whom to log in."""

    is_encrypted: bool
    credentials: Credentials | None


def read_security(kafka: Settings) -> Security:
    """What the settings ask for."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise OptionError(f"kafka.security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol}.")
    credentials = None
    if protocol.startswith("SASL"):
        credentials = _credentials(kafka)
    elif "sasl.jaas.config" in kafka:
        log.warning("kafka.sasl.jaas.config is not used, because kafka.security.protocol is %s", protocol)
    return Security(protocol.endswith("SSL"), credentials)


def tls_context(kafka: Settings) -> ssl.SSLContext:
    """Whom to trust and who we are; reads the files that the settings name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # Kafka's own way to say that a certificate need not be for the name under which the broker is reached.
    context.check_hostname = kafka.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    _set_versions(context, kafka)
    trusted = _store(kafka, "truststore", "certificates")
    if trusted is None:
        context.load_default_certs()
    elif not trusted.certificates:
        raise OptionError("kafka.ssl.truststore holds no certificate: put the authority of the brokers into it.")
    else:
        context.load_verify_locations(cadata=trusted.certificates)
    own = _own(kafka)
    if own is not None:
        _load_own(context, own, kafka.get("ssl.key.password"))
    if "ssl.cipher.suites" in kafka:
        log.warning("kafka.ssl.cipher.suites is Java's list and is not used here")
    return context


def _set_versions(context: ssl.SSLContext, kafka: Settings) -> None:
    text = kafka.get("ssl.enabled.protocols")
    if text is None:
        return
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not found:
        raise OptionError(f"kafka.ssl.enabled.protocols is {text}: name {' or '.join(_VERSIONS)}, or both.")
    context.minimum_version, context.maximum_version = min(found), max(found)


# --- key stores


def _own(kafka: Settings) -> KeyStore | None:
    key, chain = kafka.get("ssl.keystore.key"), kafka.get("ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        raise OptionError("kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together.")
    if key is not None and chain is not None:
        return KeyStore("", key, chain)
    return _store(kafka, "keystore", None)


def _store(kafka: Settings, which: str, inline: str | None) -> KeyStore | None:
    """A store from a setting's text or from the file that another names."""
    if inline is not None and (text := kafka.get(f"ssl.{which}.{inline}")) is not None:
        return read_key_store(text.encode(), None)
    location = kafka.get(f"ssl.{which}.location")
    if location is None:
        return None
    try:
        data = Path(location).read_bytes()
        return read_key_store(data, kafka.get(f"ssl.{which}.password"), kafka.get("ssl.key.password"))
    except OSError as error:
        raise OptionError(
            f"kafka.ssl.{which}.location: {location} cannot be read here ({error.strerror}). It must lie under this "
            "path on the driver and on every executor."
        ) from None
    except KeyStoreError as error:
        raise OptionError(f"kafka.ssl.{which}.location: {location} cannot be used: {error}.") from None


def _load_own(context: ssl.SSLContext, own: KeyStore, key_password: str | None) -> None:
    if own.key is None or not own.chain:
        raise OptionError(
            "kafka.ssl.keystore holds no key with its certificate: is it the trust store, or is its password missing?"
        )
    with tempfile.NamedTemporaryFile(
        "w", suffix=".pem"
    ) as file:  # for its owner alone; Python reads it from a file only
        file.write(own.key.rstrip() + "\n" + own.chain)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=key_password or "")
        except ssl.SSLError as error:
            raise OptionError(
                f"The key of kafka.ssl.keystore cannot be used: {error.reason}. Is kafka.ssl.key.password right?"
            ) from None


# --- logins


def _credentials(kafka: Settings) -> Credentials:
    mechanism = kafka.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise OptionError(f"kafka.sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}.")
    text = kafka.get("sasl.jaas.config")
    if text is None:
        raise OptionError(
            "Set kafka.sasl.jaas.config to the login, such as org.apache.kafka.common.security.plain.PlainLoginModule "
            'required username="alice" password="…"; (a JAAS file of the JVM is not read here).'
        )
    module, options = parse_jaas(text)
    if module.rpartition(".")[2] != _MODULES[mechanism]:
        raise OptionError(f"kafka.sasl.jaas.config names {module}; {mechanism} goes with {_MODULES[mechanism]}.")
    if options.get("tokenauth", "false").lower() == "true":
        raise OptionError("kafka.sasl.jaas.config asks for a delegation token; only names and passwords work here.")
    if "username" not in options or "password" not in options:
        raise OptionError("kafka.sasl.jaas.config lacks the username or the password.")
    return Credentials(cast("Mechanism", mechanism), options["username"], options["password"])


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module and its options, from one entry as Java's JAAS writes it. Errors show nothing of the text."""
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise OptionError('kafka.sasl.jaas.config is not of the form: module required name="value" …;')
    rest, position = entry["rest"], 0
    options: dict[str, str] = {}
    while found := _OPTION.match(rest, position):
        options[found["name"]] = _unquoted(found["value"])
        position = found.end()
    if rest[position:].strip() != ";":
        raise OptionError('kafka.sasl.jaas.config must go on with name="value" pairs and end with one semicolon.')
    return entry["module"], options


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value[1:-1])
