"""Certificates for tests: an authority and identities that it signs. Created anew each time, valid for a day."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A key, its certificate, and the certificate of the authority that signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    @property
    def chain_pem(self) -> str:
        return pem(self.certificate)

    def pkcs12(self, password: str) -> bytes:
        """Key, certificate and authority in one store."""
        return pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, [self.authority], BestAvailableEncryption(password.encode())
        )

    def server_context(self, directory: Path) -> ssl.SSLContext:
        """A context for a server that does not request client certificates."""
        path = directory / f"{self.certificate.serial_number}.pem"
        path.write_text(self.key_pem + self.chain_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False),
        ]
        self.certificate = self._signed(self._name, self._key.public_key(), extensions)

    @property
    def pem(self) -> str:
        return pem(self.certificate)

    def pkcs12(self, password: str) -> bytes:
        """A trust store."""
        return pkcs12.serialize_key_and_certificates(
            None, None, None, [self.certificate], BestAvailableEncryption(password.encode())
        )

    def identity(self, name: str, *, host: str | None = "localhost", address: str | None = "127.0.0.1") -> Identity:
        """A new identity, valid for a host and an address."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [] if host is None else [x509.DNSName(host)]
        if address is not None:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        extensions: list[tuple[x509.ExtensionType, bool]] = [(authority_key, False)]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        return Identity(key, self._signed(_name(name), key.public_key(), extensions), self.certificate)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, extensions: list[tuple[x509.ExtensionType, bool]]
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(self._key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
