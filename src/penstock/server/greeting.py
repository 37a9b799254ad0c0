"""Recognizes callers that do not speak Kafka's protocol by their first bytes, and says what they should do.

Read as the length of a frame, their first bytes announce hundreds of megabytes, so nobody looks for them until a frame
is refused as too large: whoever speaks the protocol pays nothing.
"""

from typing import NamedTuple

HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
TLS_RECORD = b"\x16\x03"
GREETING_BYTES = 4


class Stranger(NamedTuple):
    """A caller with another protocol."""

    kind: str
    sentence: str
    answer: bytes
    """What it may understand; empty if nothing."""


def recognize(first: bytes, peer: str, local: str) -> Stranger | None:
    """Who this is, judged by the first four bytes; None if we do not know."""
    if first.startswith(TLS_RECORD):
        return Stranger(
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
        return Stranger("http", f"{peer} sent an HTTP request, but {advice}", http_400(advice))
    return None


def http_400(sentence: str) -> bytes:
    """A whole HTTP answer that says the sentence in plain text."""
    body = sentence.encode() + b"\n"
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
