"""Connections that violate the protocol are closed after one sentence with the fix."""

import struct

import pytest

from penstock.model.limits import DEFAULT_LIMITS
from penstock.server.connections.protocol_sniffing import HTTP, recognize
from tests.unit.server.conftest import Drive
from tests.unit.server.shell import LENGTH, Place, fetch, plain, told

TLS_HELLO = bytes.fromhex("16030101ff010001fb0303") + bytes(500)
BAD_BODY = struct.pack(">hhih", 2, 6, 5, 2) + b"me\x00" + b"\xff" * 20
HUGE_ARRAY = struct.pack(">hhih", 2, 6, 5, 2) + b"me\x00" + struct.pack(">i", -1) + b"\x00" + b"\xff\xff\xff\xff\x07"
HUGE_TAGS = struct.pack(">hhih", 2, 6, 5, 2) + b"me" + b"\xff\xff\xff\xff\x07"


def test_http_is_answered_in_its_own_words(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = (await peer.rest()).decode()
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 400 Bad Request\r\n")
        assert f"Content-Length: {len(body)}" in head
        assert "not HTTP: use a Kafka client here" in body
        (sentence,) = told(caplog)
        assert body.strip() in sentence
        assert peer.connection.local in sentence

    drive(story)


def test_tls_is_told_about(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(TLS_HELLO)
        assert await peer.rest() == b""
        (sentence,) = told(caplog)
        assert "TLS handshake" in sentence
        assert "security.protocol=PLAINTEXT" in sentence

    drive(story)


def test_a_greeting_is_looked_for_at_the_beginning_only(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(plain(1), b"GET / HTTP/1.1\r\n\r\n")
        assert await peer.answers(1) == [1]
        assert await peer.rest() == b""
        (sentence,) = told(caplog)
        assert "a frame announces" in sentence

    drive(story)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (LENGTH.pack(2**31 - 1), "a frame announces 2147483647 bytes"),
        (LENGTH.pack(-1), "a frame announces -1 bytes"),
        (LENGTH.pack(0), "shorter than any"),
        (LENGTH.pack(9) + bytes(9), "shorter than any"),
        (LENGTH.pack(10) + struct.pack(">hhih", 500, 0, 1, -1), "API key 500 version 0, which nobody knows"),
        (LENGTH.pack(10) + struct.pack(">hhih", 3, 12, 1, -1), "Metadata version 12, which is not served"),
        (LENGTH.pack(10) + struct.pack(">hhih", 1, 3, 1, -1), "Fetch version 3, but 4 to 18 are served: upgrade"),
        (LENGTH.pack(10) + struct.pack(">hhih", 1, 19, 1, -1), "have it ask ApiVersions first"),
        (LENGTH.pack(10) + struct.pack(">hhih", 2, 6, 1, 77), "the header of its ListOffsets request is malformed"),
        (LENGTH.pack(14) + struct.pack(">hhih", 2, 6, 1, 3) + b"\xff\xff\xff\x00", "client id that is not UTF-8"),
        (LENGTH.pack(len(BAD_BODY)) + BAD_BODY, "its ListOffsets request of version 6 is malformed"),
        (LENGTH.pack(len(HUGE_ARRAY)) + HUGE_ARRAY, "its ListOffsets request of version 6 is malformed"),
        (LENGTH.pack(len(HUGE_TAGS)) + HUGE_TAGS, "the header of its ListOffsets request is malformed"),
    ],
)
def test_what_is_malformed_ends_its_connection(
    drive: Drive, caplog: pytest.LogCaptureFixture, data: bytes, words: str
) -> None:
    async def story(place: Place) -> None:
        peer, other = await place.connect(), await place.connect()
        await peer.send(data)
        assert await peer.rest() == b""
        (sentence,) = told(caplog)
        assert words in sentence
        assert sentence.startswith(f"Closed the connection of {peer.connection.local}: ")
        await other.send(plain(1))
        assert await other.answers(1) == [1]

    drive(story)


def test_what_came_before_is_dropped_with_the_connection(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(fetch(1))
        await place.until(lambda: place.script.began == [1])
        await peer.send(fetch(2), LENGTH.pack(-5))
        assert await peer.rest() == b""
        await place.settle()
        assert place.script.began == [1, 2]
        assert place.script.cancelled == [1], "the other had not even begun to wait"

    drive(story)


def test_a_thousand_bad_ones_are_not_a_thousand_sentences(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        for _ in range(100):
            peer = await place.connect()
            await peer.send(LENGTH.pack(2**31 - 1))
            assert await peer.rest() == b""
            peer.close()

    drive(story)
    sentences = told(caplog)
    assert 2 <= len(sentences) <= 10
    assert "more like it" in sentences[-1]


@pytest.mark.parametrize("verb", HTTP)
def test_every_verb_is_known_and_would_be_refused_as_a_frame(verb: bytes) -> None:
    stranger = recognize(verb, "peer", "local")
    assert stranger is not None
    assert stranger.kind == "http"
    assert LENGTH.unpack(verb)[0] > DEFAULT_LIMITS.frame_bytes_max < LENGTH.unpack(TLS_HELLO[:4])[0]


def test_nobody_is_taken_for_somebody_else() -> None:
    for first in (b"", b"\x16", b"\x00\x00\x00\x10", b"SSH-", b"\x15\x03\x01\x00"):
        assert recognize(first, "peer", "local") is None
