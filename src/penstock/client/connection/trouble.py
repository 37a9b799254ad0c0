"""Turns network errors into errors with advice.

Four causes look alike to a socket and need different remedies: no listener, a host name that does not resolve, a server
of another protocol, and a broker that requires TLS or a login first.
"""

import socket
import ssl

from penstock.client.errors import ClientError, ConnectionLost, NotABroker, NotTrusted, Unreachable

_TLS_FIRST_BYTES = (b"\x15\x03", b"\x16\x03")
_OTHER_PROTOCOLS = {
    b"HTTP": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"-ERR": "a Redis server",
}
_SHOWN_BYTES = 16


def cannot_connect(address: str, error: OSError, timeout_ms: int) -> ClientError:
    """The error for a failed connect."""
    match error:
        case ssl.SSLError():
            return refused_by_tls(address, error)
        case socket.gaierror():
            advice = "the name cannot be resolved: is it spelled right, and known on this machine?"
        case ConnectionRefusedError():
            advice = "nothing listens there: is the broker running, and is the port right?"
        case TimeoutError():
            advice = f"no answer within {timeout_ms} ms: is the address right, and does a firewall let you through?"
        case ConnectionResetError() if "TLS" in str(error):
            advice = "it closed the connection during the TLS handshake: use a port with TLS, or turn TLS off"
        case _:
            advice = error.strerror or str(error) or type(error).__name__
    return Unreachable(f"no connection to {address}: {advice}")


def refused_by_tls(address: str, error: ssl.SSLError) -> ClientError:
    """The error for a failed TLS handshake: a side is not trusted, or does not speak TLS."""
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
    """The error for bytes that are not a response."""
    if first[:2] in _TLS_FIRST_BYTES:
        return NotABroker(
            f"{address} speaks TLS, but this client speaks in the clear: turn TLS on, or use another port"
        )
    for start, who in _OTHER_PROTOCOLS.items():
        if first.startswith(start):
            return NotABroker(f"{address} is {who}, not a Kafka broker: is the port right?")
    shown = first[:_SHOWN_BYTES].hex(" ") or "nothing"
    return NotABroker(f"{address} does not speak Kafka's protocol ({detail}; it began with {shown})")


def closed_at_once(address: str) -> ConnectionLost:
    """The error if the server closes the connection before it answers ApiVersions."""
    return ConnectionLost(
        f"{address} closed the connection at once: it may want TLS, or be no Kafka broker, or be shutting down"
    )


def not_let_in(address: str) -> ConnectionLost:
    """The error if the server answers ApiVersions but closes the connection at the next request."""
    return ConnectionLost(f"{address} closed the connection at the first request: it may want a login (SASL)")


def lost(address: str, error: OSError | None = None) -> ClientError:
    """The error for a connection that ended while in use."""
    if isinstance(error, ssl.SSLError):
        return refused_by_tls(address, error)
    detail = f" ({error.strerror or error})" if error is not None and str(error) else ""
    return ConnectionLost(f"the connection to {address} ended{detail}")
