"""The HTTP listener for metrics: responses, and limits on clients. On virtual time and on real sockets."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from penstock.client.bootstrap import Address
from penstock.model.limits import DEFAULT_LIMITS
from penstock.model.loopback import is_loopback
from penstock.server.connections.http_listener import HttpError, parse_head
from penstock.server.settings import CannotStart, NodeSettings, check_listeners
from tests.unit.server.conftest import Drive
from tests.unit.server.metrics.exposition import read
from tests.unit.server.shell import Peer, Place

LOOPBACK = Address("127.0.0.1", 0)


def with_door(drive: Drive, story: Callable[[Place], Awaitable[None]], **settings: object) -> None:
    drive(story, metrics=LOOPBACK, **settings)


async def caller(place: Place) -> Peer:
    host, _, port = place.node.metrics_address.rpartition(":")
    place.peers.append(Peer(await place.ports.network.connect(host, int(port))))
    return place.peers[-1]


async def ask(place: Place, request: bytes) -> tuple[int, str, str]:
    """Returns code, head and body of the response."""
    peer = await caller(place)
    await peer.send(request)
    answer = (await peer.rest()).decode()
    peer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


def get(path: str, method: str = "GET", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_metrics_and_health(drive: Drive) -> None:
    async def story(place: Place) -> None:
        code, head, body = await ask(place, get("/metrics", Host="localhost:9644", Accept="*/*"))
        assert code == 200
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
        assert f"Content-Length: {len(body)}\r\n" in head
        assert read(body).value("kafka_controller_kafkacontroller_activecontrollercount") == 1
        code, head, nothing = await ask(place, get("/metrics?x=1", "HEAD"))
        assert (code, nothing, "Content-Length: " in head) == (200, "", True)
        assert await ask(place, get("/health"))
        code, _, said = await ask(place, b"GET /health HTTP/1.0\r\n\r\n")
        assert (code, said) == (200, "serving\n")
        place.node.supervisor.is_stopping = True
        assert (await ask(place, get("/health")))[::2] == (503, "stopping\n")

    with_door(drive, story)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (get("/nothing"), 404),
        (get("/"), 404),
        (get("/metrics/../health"), 404),
        (get("/metrics", "POST"), 405),
        (get("/metrics", "post"), 405),
        (get("http://localhost/metrics"), 400),
        (get("/metrics", Host="evil.example:9644"), 403),
        (get("/metrics", Host="127.0.0.1.evil.example"), 403),
        (get("/metrics", Content_Length="5") + b"12345", 400),
        (get("/metrics", Content_Length="5"), 400),
        (get("/metrics", Transfer_Encoding="chunked"), 400),
        (get("/metrics") + get("/health"), 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"x" * 9_000, 431),
        (get("/metrics", Cookie="x" * 100_000), 431),
    ],
)
def test_what_is_not_served_is_told_why(drive: Drive, request_: bytes, code: int) -> None:
    async def story(place: Place) -> None:
        found, head, body = await ask(place, request_)
        assert found == code
        assert body.endswith(".\n")
        assert ("Allow: GET, HEAD" in head) == (code == 405)
        assert (await ask(place, get("/health")))[0] == 200, "the next one is served"

    with_door(drive, story)


def test_a_head_that_comes_byte_by_byte_is_given_up(drive: Drive) -> None:
    """The time limit is for the whole head, not for each byte."""

    async def story(place: Place) -> None:
        peer = await caller(place)
        answer = asyncio.create_task(peer.rest())
        for _ in range(100):
            if answer.done():
                break
            try:
                await peer.send(b"x")
            except ConnectionError:
                break
            await asyncio.sleep(0.02)
        assert b" 408 " in await answer

    with_door(drive, story, http_head_ms=300)


def test_many_who_say_nothing_keep_nobody_away_for_long(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        silent = [await caller(place) for _ in range(4)]
        await place.until(lambda: len(place.node._http or ()) == 4)
        refused = await caller(place)
        assert await refused.rest() == b""
        assert [row for row in caplog.records if "let fewer look at once" in row.getMessage()]
        for each in silent:
            assert b" 408 " in await each.rest()
            each.close()
        await place.until(lambda: not place.node._http)
        assert (await ask(place, get("/health")))[0] == 200

    with_door(drive, story, http_head_ms=300, http_connections_max=4)


def test_an_answer_that_nobody_reads_is_dropped(drive: Drive) -> None:
    """The page is larger than the socket buffers, and the client does not read."""

    async def story(place: Place) -> None:
        door = place.node._http
        assert door is not None
        info = await ask(place, get("/metrics"))
        gathering = place.node._gathering
        assert gathering is not None

        async def large() -> list[bytes]:
            return [b"# a comment\n" * 1_000] * 2_000

        gathering.page = large  # type: ignore[method-assign]
        peer = await caller(place)
        await peer.send(get("/metrics"))
        await place.until(lambda: len(door) == 1)
        await place.until(lambda: not len(door))
        assert info[0] == 200

    with_door(drive, story, http_head_ms=200, http_answer_ms=200)


def test_all_who_look_at_once_see_one_page(drive: Drive) -> None:
    async def story(place: Place) -> None:
        gathering = place.node._gathering
        assert gathering is not None
        pages = await asyncio.gather(*(gathering.page() for _ in range(10)))
        assert all(page is pages[0] for page in pages)
        assert await gathering.page() is not pages[0]

    with_door(drive, story)


def test_a_page_that_fails_is_told_and_the_next_one_comes(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        index = place.node.storage.directory.logs
        place.node.storage.directory.logs = None  # type: ignore[assignment]
        assert (await ask(place, get("/metrics")))[0] == 500
        place.node.storage.directory.logs = index
        assert (await ask(place, get("/metrics")))[0] == 200
        assert [row for row in caplog.records if "please report this" in row.getMessage()]

    with_door(drive, story)


def test_a_node_stops_whoever_looks(drive: Drive) -> None:
    async def story(place: Place) -> None:
        for _ in range(3):
            await (await caller(place)).send(b"GET /me")

    with_door(drive, story)


def test_beyond_loopback_it_must_be_allowed() -> None:
    settings = NodeSettings("c", metrics=Address("0.0.0.0", 9644))
    with pytest.raises(CannotStart, match=r"0\.0\.0\.0:9644 is plaintext"):
        check_listeners(settings)
    check_listeners(NodeSettings("c", metrics=Address("0.0.0.0", 9644), allow_plaintext_beyond_loopback=True))
    check_listeners(NodeSettings("c", metrics=LOOPBACK))
    assert not is_loopback("127.evil.example")


def test_no_bytes_do_more_than_be_refused() -> None:
    """Random bytes are a request or are refused."""
    chance = random.Random(7)
    words = [
        b"GET",
        b"HEAD",
        b" ",
        b"/",
        b"/metrics",
        b"HTTP/1.1",
        b"\r\n",
        b":",
        b"Host",
        b"\x00",
        b"\xff",
        b"\n",
        b"?",
    ]
    for _ in range(20_000):
        head = b"".join(chance.choices(words, k=chance.randrange(12)))
        with suppress(HttpError):
            assert parse_head(head).path.startswith("/")
    assert DEFAULT_LIMITS.http_head_bytes_max <= 8 * 1024
