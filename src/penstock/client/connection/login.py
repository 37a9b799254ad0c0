"""SASL login of a connection: sends the mechanism, then exchanges its messages."""

from typing import NamedTuple

from penstock.client.connection.connection import BrokerConnection
from penstock.client.connection.sasl import NONCE_BYTES, Mechanism, exchange
from penstock.client.errors import LoginFailed
from penstock.model.errors import ErrorCode
from penstock.model.ports import Entropy
from penstock.wire.api import Api
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

STEPS_MAX = 4


class Credentials(NamedTuple):
    """SASL credentials."""

    mechanism: Mechanism
    username: str
    password: str


class SaslLogin:
    """Credentials for any number of connections."""

    def __init__(self, mechanism: Mechanism, username: str, password: str, entropy: Entropy) -> None:
        self._mechanism: Mechanism = mechanism
        self._username = username
        self._password = password
        self._entropy = entropy
        exchange(mechanism, username, password, bytes(NONCE_BYTES))  # raises at once if the arguments are invalid

    def __repr__(self) -> str:
        return f"<SASL {self._mechanism} as {self._username}>"

    async def log_in(self, connection: BrokerConnection) -> int:
        """Logs in; returns the session lifetime in milliseconds, 0 if it is unlimited."""
        if Api.SASL_HANDSHAKE not in connection.served:
            raise LoginFailed(
                f"{connection.address} offers no login (SASL): leave the credentials out, or use another port"
            )
        talk = exchange(self._mechanism, self._username, self._password, self._entropy.token(NONCE_BYTES))
        handshake = await connection.ask(
            SaslHandshakeRequest(mechanism=self._mechanism), SaslHandshakeResponse, version=1
        )
        if handshake.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise LoginFailed(f"{connection.address} does not offer {self._mechanism}, but {offered}")
        if handshake.error_code is ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginFailed(f"{connection.address} expects no login on this port: leave the credentials out")
        if handshake.error_code is not ErrorCode.NONE:
            raise LoginFailed(f"{connection.address} refuses to begin a login: {handshake.error_code.name}")
        message: bytes | None = talk.first()
        lasts_ms = 0
        for _ in range(STEPS_MAX):
            if message is None:
                return lasts_ms
            answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if answer.error_code is not ErrorCode.NONE:
                reason = answer.error_message or answer.error_code.name
                raise LoginFailed(f"{connection.address} refuses the login of {self._username}: {reason}")
            lasts_ms = answer.session_lifetime_ms
            message = talk.reply(answer.auth_bytes)
        raise LoginFailed(f"{connection.address} did not end the login after {STEPS_MAX} steps")
