"""Turns what the network says into what a person can act on.

Four things look alike to a socket and need different remedies: nobody there, a name that does not resolve, a stranger
behind the port, and a broker that wants TLS or a login first.
"""

import socket
import ssl

from penstock.client.errors import ClientError, ConnectionLost, NotABroker, NotTrusted, Unreachable

_TLS_FIRST_BYTES = (b"\x15\x03", b"\x16\x03")
_STRANGERS = {
    b"HTTP": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"-ERR": "a Redis server",
}
_SHOWN_BYTES = 16


def cannot_connect(address: str, error: OSError, timeout_ms: int) -> ClientError:
    """Why there is no connection."""
    match error:
        case ssl.SSLError():
            return refused_by_tls(address, error)
        case socket.gaierror():
            advice = "the name cannot be resolved: is it spelled right, and known on this machine?"
        case ConnectionRefusedError():
            advice = "nothing listens there: is the broker running, and is the port right?"
        case TimeoutError():
            advice = f"no answer within {timeout_ms} ms: is the address right, and does a firewall let you through?"
        case _:
            advice = error.strerror or str(error) or type(error).__name__
    return Unreachable(f"no connection to {address}: {advice}")


def refused_by_tls(address: str, error: ssl.SSLError) -> ClientError:
    """One end does not trust the other, or one of them does not speak TLS at all."""
    match error:
        case ssl.SSLCertVerificationError():
            advice = f"{error.verify_message}: does the client know the authority, and the broker its own name?"
        case _ if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return NotABroker(f"{address} does not speak TLS: use another port, or turn TLS off")
        case _ if "ALERT" in (error.reason or ""):
            advice = f"the broker says {error.reason}: it may want a certificate of the client"
        case _:
            advice = error.reason or str(error)
    return NotTrusted(f"no trust between {address} and this client: {advice}")


def unreadable(address: str, first: bytes, detail: str) -> NotABroker:
    """What came back is not an answer."""
    if first[:2] in _TLS_FIRST_BYTES:
        return NotABroker(
            f"{address} speaks TLS, but this client speaks in the clear: turn TLS on, or use another port"
        )
    for start, who in _STRANGERS.items():
        if first.startswith(start):
            return NotABroker(f"{address} is {who}, not a Kafka broker: is the port right?")
    shown = first[:_SHOWN_BYTES].hex(" ") or "nothing"
    return NotABroker(f"{address} does not speak Kafka's protocol ({detail}; it began with {shown})")


def closed_at_once(address: str) -> ConnectionLost:
    """The other end hung up on our first words."""
    return ConnectionLost(
        f"{address} closed the connection at once: it may want TLS, or be no Kafka broker, or be shutting down"
    )


def not_let_in(address: str) -> ConnectionLost:
    """The other end knows the protocol but hung up on our first request."""
    return ConnectionLost(f"{address} closed the connection at the first request: it may want a login (SASL)")


def lost(address: str, error: OSError | None = None) -> ClientError:
    """The connection ended under way."""
    if isinstance(error, ssl.SSLError):
        return refused_by_tls(address, error)
    detail = f" ({error.strerror or error})" if error is not None and str(error) else ""
    return ConnectionLost(f"the connection to {address} ended{detail}")
