"""TLS and logins from the settings of Kafka's Java clients.

They are `security.protocol`, `ssl.*`, `sasl.mechanism` and `sasl.jaas.config`. Files are opened when the TLS context is
made. As in Java, every certificate in a trust store is trusted, whether it is an authority's or not. Messages put the
`prefix` before the name of a setting: Spark's connector has `kafka.` there.
"""

import logging
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from penstock.client.connection.keystore import KeyStore, KeyStoreError, read_key_store
from penstock.client.connection.login import Credentials
from penstock.client.connection.sasl import Mechanism

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

log = logging.getLogger("penstock.client")

Settings = Mapping[str, str]
"""The client's settings without their prefix."""


class SecurityError(ValueError):
    """An invalid setting of TLS or of a login; the message says how to correct it."""


class UnreadableFile(SecurityError):
    """A file that a setting names cannot be opened."""


@dataclass(frozen=True, slots=True)
class Security:
    """Whether to encrypt, and the credentials for the login."""

    is_encrypted: bool
    credentials: Credentials | None


def read_security(kafka: Settings, prefix: str = "") -> Security:
    """Reads the protocol and the credentials from the settings."""
    protocol = kafka.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise SecurityError(f"{prefix}security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol}.")
    credentials = None
    if protocol.startswith("SASL"):
        credentials = _credentials(kafka, prefix)
    elif "sasl.jaas.config" in kafka:
        log.warning("%ssasl.jaas.config is not used, because %ssecurity.protocol is %s", prefix, prefix, protocol)
    return Security(protocol.endswith("SSL"), credentials)


def tls_context(kafka: Settings, prefix: str = "") -> ssl.SSLContext:
    """The trusted certificates and the client's own; reads the files that the settings name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # In Kafka, an empty algorithm means that a certificate need not match the broker's host name.
    context.check_hostname = kafka.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
    _set_versions(context, kafka, prefix)
    trusted = _store(kafka, prefix, "truststore", "certificates")
    if trusted is None:
        context.load_default_certs()
    elif not trusted.certificates:
        raise SecurityError(f"{prefix}ssl.truststore holds no certificate: put the authority of the brokers into it.")
    else:
        context.load_verify_locations(cadata=trusted.certificates)
    own = _own(kafka, prefix)
    if own is not None:
        _load_own(context, own, kafka.get("ssl.key.password"), prefix)
    if "ssl.cipher.suites" in kafka:
        log.warning("%sssl.cipher.suites is Java's list and is not used here", prefix)
    return context


def _set_versions(context: ssl.SSLContext, kafka: Settings, prefix: str) -> None:
    text = kafka.get("ssl.enabled.protocols")
    if text is None:
        return
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [_VERSIONS[name] for name in names if name in _VERSIONS]
    if not found:
        raise SecurityError(f"{prefix}ssl.enabled.protocols is {text}: name {' or '.join(_VERSIONS)}, or both.")
    context.minimum_version, context.maximum_version = min(found), max(found)


# --- key stores


def _own(kafka: Settings, prefix: str) -> KeyStore | None:
    key, chain = kafka.get("ssl.keystore.key"), kafka.get("ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        raise SecurityError(f"{prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain go together.")
    if key is not None and chain is not None:
        return KeyStore("", key, chain)
    return _store(kafka, prefix, "keystore", None)


def _store(kafka: Settings, prefix: str, which: str, inline: str | None) -> KeyStore | None:
    """A store from an inline setting, or from the file that another setting names."""
    if inline is not None and (text := kafka.get(f"ssl.{which}.{inline}")) is not None:
        return read_key_store(text.encode(), None)
    location = kafka.get(f"ssl.{which}.location")
    if location is None:
        return None
    try:
        data = Path(location).read_bytes()
        return read_key_store(data, kafka.get(f"ssl.{which}.password"), kafka.get("ssl.key.password"))
    except OSError as error:
        raise UnreadableFile(
            f"{prefix}ssl.{which}.location: {location} cannot be read here ({error.strerror})."
        ) from None
    except KeyStoreError as error:
        raise SecurityError(f"{prefix}ssl.{which}.location: {location} cannot be used: {error}.") from None


def _load_own(context: ssl.SSLContext, own: KeyStore, key_password: str | None, prefix: str) -> None:
    if own.key is None or not own.chain:
        raise SecurityError(
            f"{prefix}ssl.keystore holds no key with its certificate: is it the trust store, or is its password "
            "missing?"
        )
    with tempfile.NamedTemporaryFile(
        "w", suffix=".pem"
    ) as file:  # readable by its owner only; Python loads a key only from a file
        file.write(own.key.rstrip() + "\n" + own.chain)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=key_password or "")
        except ssl.SSLError as error:
            raise SecurityError(
                f"The key of {prefix}ssl.keystore cannot be used: {error.reason}. Is {prefix}ssl.key.password right?"
            ) from None


# --- logins


def _credentials(kafka: Settings, prefix: str) -> Credentials:
    mechanism = kafka.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise SecurityError(f"{prefix}sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}.")
    text = kafka.get("sasl.jaas.config")
    if text is None:
        raise SecurityError(
            f"Set {prefix}sasl.jaas.config to the login, such as "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…"; '
            "(a JAAS file of the JVM is not read here)."
        )
    module, options = parse_jaas(text, prefix)
    if module.rpartition(".")[2] != _MODULES[mechanism]:
        raise SecurityError(f"{prefix}sasl.jaas.config names {module}; {mechanism} goes with {_MODULES[mechanism]}.")
    if options.get("tokenauth", "false").lower() == "true":
        raise SecurityError(
            f"{prefix}sasl.jaas.config asks for a delegation token; only names and passwords work here."
        )
    if "username" not in options or "password" not in options:
        raise SecurityError(f"{prefix}sasl.jaas.config lacks the username or the password.")
    return Credentials(cast("Mechanism", mechanism), options["username"], options["password"])


def parse_jaas(text: str, prefix: str = "") -> tuple[str, dict[str, str]]:
    """The login module and its options, from one JAAS entry. Error messages show nothing of the text."""
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise SecurityError(f'{prefix}sasl.jaas.config is not of the form: module required name="value" …;')
    rest, position = entry["rest"], 0
    options: dict[str, str] = {}
    while found := _OPTION.match(rest, position):
        options[found["name"]] = _unquoted(found["value"])
        position = found.end()
    if rest[position:].strip() != ";":
        raise SecurityError(f'{prefix}sasl.jaas.config must go on with name="value" pairs and end with one semicolon.')
    return entry["module"], options


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value[1:-1])
