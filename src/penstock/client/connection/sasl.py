"""The client's side of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677). Pure: text in, text out.

As in Kafka, user names and passwords are UTF-8 without SASLprep, and there is no channel binding. In SCRAM the server
must authenticate itself too: another nonce, a weak iteration count or a wrong signature ends the login.
"""

import base64
import hashlib
import hmac
from typing import Literal, Protocol

from penstock.client.errors import LoginFailed

ScramName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
Mechanism = Literal["PLAIN"] | ScramName

NONCE_BYTES = 24
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 1_000_000
"""Each iteration costs time: a server may not demand any number."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_GS2_HEADER = "n,,"


class Exchange(Protocol):
    """The messages of a mechanism, step by step."""

    def first(self) -> bytes:
        """The first message."""

    def reply(self, challenge: bytes) -> bytes | None:
        """The reply to a challenge; None when the login is done. Raises LoginFailed if the server cannot be trusted."""


class Plain:
    """User name and password in clear text: only for use over TLS or on one machine."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username + password:
            raise ValueError("neither user name nor password may hold a zero byte")
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """The only message."""
        return self._message

    def reply(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - brokers send nothing of interest
        """None: there is no second message."""
        return None


class Scram:
    """Proves the password without revealing it, and requires the same proof of the server."""

    def __init__(self, mechanism: ScramName, username: str, password: str, nonce: str) -> None:
        if not nonce or "," in nonce:
            raise ValueError("a nonce is printable and without commas")
        self._hash = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        """User name and nonce."""
        return (_GS2_HEADER + self._first_bare).encode()

    def reply(self, challenge: bytes) -> bytes | None:
        """The proof; then, once the server's signature is verified, None."""
        if self._server_signature is None:
            return self._prove(challenge)
        self._check_server(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        fields = _fields(challenge, ("r", "s", "i"))
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise LoginFailed("the broker answered with a nonce that is not built on ours: do not trust it")
        salt = _decoded(fields["s"])
        if not fields["i"].isascii() or not fields["i"].isdigit():
            raise LoginFailed("the broker sent no iteration count")
        iterations = int(fields["i"][:10])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise LoginFailed(f"the broker asks for {iterations} iterations; allowed are 4096 to {ITERATIONS_MAX}")
        final_bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{challenge.decode()},{final_bare}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()

    def _check_server(self, challenge: bytes) -> None:
        text = challenge.decode(errors="replace")
        if text.startswith("e="):
            raise LoginFailed(f"the broker refuses the login: {text[2:]}")
        fields = _fields(challenge, ("v",))
        if not hmac.compare_digest(_decoded(fields["v"]), self._server_signature or b""):
            raise LoginFailed("the broker does not know the password either: do not trust it")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes, names: tuple[str, ...]) -> dict[str, str]:
    """The attributes of a server message, which must begin with these names, in order."""
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise LoginFailed("the broker's login message is not text") from None
    found = dict(zip(names, (part[2:] for part in parts), strict=False))
    if len(parts) < len(names) or any(
        not part.startswith(f"{name}=") for name, part in zip(names, parts, strict=False)
    ):
        raise LoginFailed(f"the broker's login message lacks {', '.join(names)}")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise LoginFailed("the broker's login message is not base64 where it should be") from None


def exchange(mechanism: Mechanism, username: str, password: str, token: bytes) -> Exchange:
    """An exchange of this mechanism; the token holds random bytes for the nonce."""
    if mechanism == "PLAIN":
        return Plain(username, password)
    if mechanism in _HASHES:
        return Scram(mechanism, username, password, base64.urlsafe_b64encode(token).decode())
    raise ValueError(f"{mechanism} is not among PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")
