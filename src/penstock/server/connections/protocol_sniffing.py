"""Recognizes clients of other protocols than Kafka's by their first bytes, with advice on what to change.

Read as the length of a frame, their first bytes announce hundreds of megabytes. They are therefore inspected only after
a frame was refused as too large, and Kafka clients pay nothing.
"""

from typing import NamedTuple

HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
TLS_RECORD = b"\x16\x03"
GREETING_BYTES = 4


class ForeignProtocol(NamedTuple):
    """A client of another protocol."""

    kind: str
    sentence: str
    answer: bytes
    """A response in the client's protocol; empty if there is none."""


def recognize(first: bytes, peer: str, local: str) -> ForeignProtocol | None:
    """Identifies the protocol by the first four bytes; None if it is unknown."""
    if first.startswith(TLS_RECORD):
        return ForeignProtocol(
            "tls",
            f"{peer} began with a TLS handshake, but {local} speaks plaintext: set security.protocol=PLAINTEXT in the "
            "client, or point it at a TLS listener.",
            b"",
        )
    if first.startswith(HTTP):
        advice = (
            f"{local} speaks Kafka's protocol, not HTTP: use a Kafka client here, "
            "and the address of the admin or metrics endpoint for HTTP."
        )
        return ForeignProtocol("http", f"{peer} sent an HTTP request, but {advice}", http_400(advice))
    return None


def http_400(sentence: str) -> bytes:
    """A whole HTTP response with the sentence as plain text."""
    body = sentence.encode() + b"\n"
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
