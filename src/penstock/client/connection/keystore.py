"""Converts the Java key stores that Kafka's settings name to PEM, which Python's TLS reads.

As in Java, the content determines the format, not the setting or the file name. JKS is parsed here, PKCS #12 by the
package cryptography; PEM is used as it is.
"""

import base64
import hashlib
import hmac
import struct
from dataclasses import dataclass

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_PEM_MARK = b"-----BEGIN "
_DER_SEQUENCE = 0x30
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_SHA1_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_LINE = 64


class KeyStoreError(ValueError):
    """A store that cannot be read; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Certificates and keys in PEM. `chain` belongs to `key`; `trusted` are the other certificates."""

    trusted: str
    key: str | None = None
    chain: str = ""

    @property
    def certificates(self) -> str:
        """All certificates."""
        return self.trusted + self.chain


def read_key_store(data: bytes, password: str | None, key_password: str | None = None) -> KeyStore:
    """Reads a store of any of the three formats. Without its password, a JKS store still gives its certificates."""
    if data.startswith(_JKS_MAGIC):
        return _read_jks(data, password, password if key_password is None else key_password)
    if _PEM_MARK in data:
        return _read_pem(data.decode())
    if data[:1] == bytes([_DER_SEQUENCE]):
        return _read_pkcs12(data, password)
    raise KeyStoreError("it is neither PEM nor JKS nor PKCS #12")


# --- PEM


def _read_pem(text: str) -> KeyStore:
    certificates: list[str] = []
    keys: list[str] = []
    for block in text.split("-----BEGIN ")[1:]:
        label = block.partition("-----")[0]
        end = f"-----END {label}-----"
        body, found, _ = block.partition(end)
        if not found:
            raise KeyStoreError(f"the PEM block {label} does not end")
        (certificates if label == "CERTIFICATE" else keys).append(f"-----BEGIN {body}{end}\n")
    if len(keys) > 1:
        raise KeyStoreError("it holds more than one key")
    if keys:
        return KeyStore("", keys[0], "".join(certificates))
    return KeyStore("".join(certificates))


def _pem(label: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


# --- JKS


class _Reader:
    """Reads numbers and strings as written by Java's DataOutputStream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def take(self, count: int) -> bytes:
        taken = self._data[self._position : self._position + count]
        if len(taken) < count:
            raise KeyStoreError("the JKS file ends early")
        self._position += count
        return taken

    def text(self) -> str:
        return self.take(self.number(">H")).decode(errors="replace")

    def certificate(self, version: int) -> str:
        if version == 2:
            self.text()  # always X.509
        return _pem("CERTIFICATE", self.take(self.number(">I")))


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_SHA1_BYTES]).digest()  # noqa: S324 - the format's
        if not hmac.compare_digest(digest, data[-_SHA1_BYTES:]):
            raise KeyStoreError("the password is wrong, or the JKS file is damaged")
    reader = _Reader(data[len(_JKS_MAGIC) : -_SHA1_BYTES])
    version, count = reader.number(">I"), reader.number(">I")
    trusted, key, chain = "", None, ""
    for _ in range(count):
        tag = reader.number(">I")
        alias = reader.text()
        reader.number(">Q")  # creation date
        if tag == _CERTIFICATE_ENTRY:
            trusted += reader.certificate(version)
        elif tag == _KEY_ENTRY:
            protected = reader.take(reader.number(">I"))
            found = "".join(reader.certificate(version) for _ in range(reader.number(">I")))
            if key is None and key_password is not None:
                key, chain = _pem("PRIVATE KEY", _jks_key(protected, key_password)), found
        else:
            raise KeyStoreError(f"entry {alias} is of a kind that cannot be read here")
    return KeyStore(trusted, key, chain)


def _jks_key(protected: bytes, password: str) -> bytes:
    """Decrypts a key in JKS's own format: XOR with chained SHA-1 hashes of password and salt."""
    sealed = _octets(protected)
    salt, hidden, check = sealed[:_SHA1_BYTES], sealed[_SHA1_BYTES:-_SHA1_BYTES], sealed[-_SHA1_BYTES:]
    secret = _utf16(password)
    stream, block = b"", salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's
        stream += block
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):  # noqa: S324 - the format's
        raise KeyStoreError("the password of the key is wrong")
    return plain


def _octets(der: bytes) -> bytes:
    """The second field of a sequence: EncryptedPrivateKeyInfo holds an algorithm and then the data."""
    _, content = _der_field(der)
    rest, _ = _der_field(content)
    _, data = _der_field(rest)
    return data


def _der_field(der: bytes) -> tuple[bytes, bytes]:
    """The bytes after the first field, and the content of the first field."""
    if len(der) < 2:
        raise KeyStoreError("a key in the JKS file is damaged")
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[start + length :], der[start : start + length]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


# --- PKCS #12


def _read_pkcs12(data: bytes, password: str | None) -> KeyStore:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise KeyStoreError(
            "to read PKCS #12, install the package cryptography (it is in penstock[spark]), or convert it to PEM"
        ) from None
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise KeyStoreError(f"the password is wrong, or it is not PKCS #12: {error}") from None
    trusted = "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in store.additional_certs)
    if store.key is None or store.cert is None:
        return KeyStore(trusted)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = store.cert.certificate.public_bytes(Encoding.PEM).decode()
    return KeyStore("", key, own + trusted)
