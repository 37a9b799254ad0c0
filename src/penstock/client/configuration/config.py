"""Settings of a client under the names of Kafka's Java clients, from a file or a mapping.

A file is in Java's properties format: the one that Kafka's tools take as `--command-config`. An unknown name is an
error, and so is a setting that this client would ignore.
"""

import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from penstock.client.arguments import described
from penstock.client.configuration.options import ClientOptions
from penstock.client.properties import parse_properties
from penstock.records.compression import Codec

ConfigSource = str | os.PathLike[str] | Mapping[str, str | int | bool]
"""The path of a file, or settings by name."""

_LIKELY = 0.75
_INT_MAX = 2**31 - 1


class ConfigError(ValueError):
    """A setting that is unknown or has an invalid value; the message says how to correct it."""


class Meaning(NamedTuple):
    """The option that a setting gives, and how its text is read."""

    option: str
    read: Callable[[str], Any]


def _number(least: int, most: int = _INT_MAX) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().removeprefix("-").isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"a number from {least} to {most}")
        return int(text)

    return read


def _one_of(**values: object) -> Callable[[str], object]:
    def read(text: str) -> object:
        found = values.get(text.strip().lower(), values)
        if found is values:
            raise ValueError(f"one of {', '.join(values)}")
        return found

    return read


def _acks(text: str) -> object:
    found = {"all": "all", "-1": "all", "1": 1, "0": 0}.get(text.strip().lower())
    if found is None:
        raise ValueError("all, 1 or 0")
    return found


CLIENT: Mapping[str, Meaning] = {
    "bootstrap.servers": Meaning("bootstrap", str),
    "client.id": Meaning("client_id", str),
    "default.api.timeout.ms": Meaning("timeout_ms", _number(1)),
    "request.timeout.ms": Meaning("request_timeout_ms", _number(1)),
    "socket.connection.setup.timeout.ms": Meaning("connect_timeout_ms", _number(1)),
}
PRODUCER: Mapping[str, Meaning] = {
    "acks": Meaning("acks", _acks),
    "batch.size": Meaning("batch_bytes", _number(1)),
    "buffer.memory": Meaning("buffer_bytes_max", _number(1, 2**63 - 1)),
    "compression.type": Meaning("codec", _one_of(**{each.name.lower(): each for each in Codec})),
    "delivery.timeout.ms": Meaning("delivery_timeout_ms", _number(1)),
    "enable.idempotence": Meaning("is_idempotent", _one_of(true=True, false=False)),
    "linger.ms": Meaning("linger_ms", _number(0)),
    "max.block.ms": Meaning("block_ms_max", _number(0)),
    "max.request.size": Meaning("request_bytes_max", _number(1)),
}
SECURITY = (
    "sasl.jaas.config",
    "sasl.mechanism",
    "security.protocol",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
NAMES = (*CLIENT, *PRODUCER, *SECURITY)

_LOGIN = (
    "the login is sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="…" password="…";'
)
_ADVICE = {
    "auto.offset.reset": "pass start to consume",
    "enable.auto.commit": "pass commits to group_consumer",
    "group.id": "pass group to consume",
    "group.instance.id": "pass instance_id to consume",
    "isolation.level": "pass isolation to consume",
    "max.poll.records": "pass max_batch to consume",
    "sasl.mechanisms": "the name is sasl.mechanism",
    "sasl.password": _LOGIN,
    "sasl.username": _LOGIN,
    "ssl.ca.location": "the name is ssl.truststore.location, and ssl.truststore.type=PEM",
    "ssl.certificate.location": "the name is ssl.keystore.location, a PEM file with key and certificate",
    "ssl.key.location": "the name is ssl.keystore.location, a PEM file with key and certificate",
    "transactional.id": "this client has no transactions yet",
}
"""What to do instead of a known setting that has no effect here."""


def read_config(source: ConfigSource) -> dict[str, str]:
    """The settings in a file or a mapping as text by name; names are checked."""
    if isinstance(source, Mapping):
        found = {name: _text(name, value) for name, value in source.items()}
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            found = dict(parse_properties(path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            raise ConfigError(f"config: {path} is not a text in UTF-8: is it the right file?") from None
        except OSError as error:
            raise ConfigError(
                f"config: {path} cannot be read ({error.strerror}): check the path and its permissions"
            ) from None
    else:
        raise TypeError(f"config must be the path of a file or a mapping, not {described(source)}")
    for name in found:
        _check_name(name)
    return found


def options_from(source: ConfigSource) -> tuple[str | None, ClientOptions]:
    """The addresses and the options that settings give; files that they name are read."""
    settings = read_config(source)
    options: dict[str, Any] = _read(settings, CLIENT)
    if producer := _read(settings, PRODUCER):
        options["producer"] = producer
    if any(name in settings for name in SECURITY):
        _check_security(settings)
        from penstock.client.connection.security import SecurityError, read_security, tls_context

        try:
            security = read_security(settings)
            if security.credentials is not None:
                options["sasl"] = security.credentials
            if security.is_encrypted:
                options["tls"] = tls_context(settings)
        except SecurityError as error:
            raise ConfigError(f"config: {error}") from None
    bootstrap: str | None = options.pop("bootstrap", None)
    return bootstrap, cast("ClientOptions", options)


def _read(settings: Mapping[str, str], table: Mapping[str, Meaning]) -> dict[str, Any]:
    found = {}
    for name, meaning in table.items():
        if (text := settings.get(name)) is None:
            continue
        try:
            found[meaning.option] = meaning.read(text)
        except ValueError as error:
            raise ConfigError(f"config: {name} must be {error}, not {text!r}") from None
    return found


def _check_security(settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a login or TLS settings that the protocol leaves unused."""
    protocol = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    for name in settings:
        if name.startswith("sasl.") and protocol in {"PLAINTEXT", "SSL"}:
            lack, remedy = "which has no login", "SASL_SSL"
        elif name.startswith("ssl.") and protocol in {"PLAINTEXT", "SASL_PLAINTEXT"}:
            lack, remedy = "which does not encrypt", "SSL or SASL_SSL"
        else:
            continue
        raise ConfigError(
            f"config: {name} has no effect: security.protocol is {protocol}, {lack}; set it to {remedy}, "
            f"or leave {name} out"
        )


def _text(name: object, value: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"config: a name must be str, not {described(name)}")
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise TypeError(f"config: {name} must be str, int or bool, not {described(value)}")
    return str(value)


def _check_name(name: str) -> None:
    if name in NAMES:
        return
    if advice := _ADVICE.get(name):
        raise ConfigError(f"config: {name} has no effect on this client: {advice}")
    close = difflib.get_close_matches(name, NAMES, n=1, cutoff=_LIKELY)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(NAMES)}"
    raise ConfigError(f"config: {name} is not a setting of this client: {hint}")
