"""Connection limits, closing of idle and slow connections, and shutdown of a listener."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.limits import Limits
from tests.unit.server.conftest import Drive, on_real_sockets, on_virtual_time
from tests.unit.server.shell import Peer, Place, fetch, plain, produce, reply, told


async def is_open(peer: Peer) -> bool:
    await peer.send(plain(1))
    return await peer.receive() is not None


async def is_refused(peer: Peer) -> bool:
    return await peer.rest() == b""


def test_no_more_connections_than_allowed(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peers = [await place.connect() for _ in range(3)]
        assert [await is_open(peer) for peer in peers] == [True] * 3
        for _ in range(20):
            assert await is_refused(await place.connect())
        assert place.node.listeners.doors["PLAINTEXT"][0].refused == 20
        peers[0].close()
        await place.until(lambda: len(place.node.listeners.doors["PLAINTEXT"][0]) == 2)
        assert await is_open(await place.connect())

    drive(story, connections_max=3, probation_connections_max=0)
    sentences = told(caplog)
    assert "3 are open; close some, or raise connections_max" in sentences[0]
    assert len(sentences) <= 3, "one sentence a second"


def test_no_more_connections_of_one_host_than_allowed(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peers = [await place.connect() for _ in range(2)]
        assert [await is_open(peer) for peer in peers] == [True] * 2
        assert await is_refused(await place.connect())
        peers[0].close()
        await place.until(lambda: len(place.node.listeners.doors["PLAINTEXT"][0]) == 1)
        assert await is_open(await place.connect())

    drive(story, connections_per_host_max=2, probation_connections_max=0)
    assert "raise connections_per_host_max" in told(caplog)[0]


def test_no_more_new_connections_in_a_second_than_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        async def knock() -> bool:
            return await is_open(await place.connect())

        async def try_knock() -> bool:
            try:
                return await knock()
            except ConnectionError:
                return False

        assert sum([await try_knock() for _ in range(30)]) == 10
        await asyncio.sleep(0.55)
        assert sum([await try_knock() for _ in range(30)]) in (5, 6)
        await asyncio.sleep(10)
        assert sum([await try_knock() for _ in range(30)]) == 10

    on_virtual_time(story, Limits(connection_rate_max=10, probation_connections_max=0))
    assert "raise connection_rate_max" in told(caplog)[0]
    assert len(told(caplog)) <= 6


def test_an_idle_connection_is_closed_and_a_busy_or_waiting_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        idle, busy, waiting = [await place.connect() for _ in range(3)]
        assert await is_open(idle)
        await waiting.send(fetch(1))
        for _ in range(7):
            await asyncio.sleep(99)
            assert await is_open(busy)
        assert await is_refused(idle)
        place.script.let_go(1)
        assert await waiting.answers(1) == [1]
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 2

    on_virtual_time(story, Limits(connection_idle_ms=600_000))
    assert told(caplog) == [], "that is no reason to complain"


def test_a_frame_must_become_whole_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        slow, slower, silent = [await place.connect() for _ in range(3)]
        frame = produce(1, bytes(1_000))
        for peer in (slow, slower):
            await peer.send(frame[:2])
        for n in range(2, 27):
            await asyncio.sleep(1)
            await slow.send(frame[n : n + 1])
            await slower.send(frame[n : n + 1])
        await slow.send(frame[27:])
        assert await slow.answers(1) == [1]
        await asyncio.sleep(7)
        assert await is_refused(slower)
        assert await is_open(silent)
        assert await is_open(slow)

    on_virtual_time(story)
    (sentence,) = told(caplog)
    assert "not whole after 30000 ms" in sentence


def test_a_frame_must_become_whole_in_time_on_real_sockets(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        slow, other = await place.connect(), await place.connect()
        await slow.send(produce(1)[:7])
        assert await is_refused(slow)
        assert await is_open(other)

    on_real_sockets(tmp_path, story, Limits(frame_arrival_ms=100))


def test_time_does_not_run_while_a_frame_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        one, other = await place.connect(), await place.connect()
        place.script.shut += [1]
        await one.send(produce(1, bytes(100_000)))
        await place.until(lambda: place.script.began == [1])
        frame = produce(2, bytes(100_000))
        await other.send(frame[:90_000])
        await asyncio.sleep(200)
        assert place.node.listeners.pool.waiting == 1
        place.script.let_go(1)
        assert await one.answers(1) == [1]
        await asyncio.sleep(20)
        await other.send(frame[90_000:])
        assert await other.answers(1) == [2]

    on_virtual_time(story, Limits(input_pool_bytes_max=50_000))
    assert told(caplog) == []


def test_who_does_not_read_its_answers_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer, other = await place.connect(), await place.connect()
        await peer.send(fetch(1), fetch(2))
        await place.until(lambda: place.script.began == [1, 2])
        for n in (1, 2):
            place.script.gate(n).set_result([reply(n, bytes(1_000_000))])
        for _ in range(30):
            await asyncio.sleep(50)
            assert await is_open(other)
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 1

    on_virtual_time(story)
    (sentence,) = told(caplog)
    assert "has not read its answers for too long" in sentence


def test_a_stop_lets_what_is_under_way_finish_and_begins_nothing(drive: Drive) -> None:
    async def story(place: Place) -> None:
        idle, polling, busy, half = [await place.connect() for _ in range(4)]
        place.script.shut += [2]
        await polling.send(fetch(1))
        await busy.send(plain(2), plain(3))
        await half.send(produce(4)[:9])
        assert await is_open(idle)
        await place.until(lambda: len(place.script.began) == 3)
        began_s = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(place.node.listeners.doors["PLAINTEXT"][0].stop(30_000))
        assert await is_refused(idle)
        assert await is_refused(half)
        await place.settle()
        assert not stopping.done()
        place.script.let_go(1, 2)
        assert await polling.answers(1) == [1]
        assert await busy.answers(1) == [2]
        assert await polling.rest() == await busy.rest() == b""
        await stopping
        assert asyncio.get_running_loop().time() < began_s + 10, "it waited though nothing was under way"
        with pytest.raises(OSError):  # noqa: PT011 - refused or unreachable, as the world likes
            await place.connect()
        assert 3 not in place.script.began

    drive(story)


def test_a_stop_waits_no_longer_than_its_deadline(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(fetch(1))
        await place.until(lambda: place.script.began == [1])
        await place.node.listeners.doors["PLAINTEXT"][0].stop(200)
        assert await is_refused(peer)
        assert place.script.cancelled == [1]

    drive(story)
    assert [row.getMessage() for row in caplog.records if "raise stop_ms" in row.getMessage()]


def test_two_runs_of_one_seed_are_the_same_to_the_byte() -> None:
    async def story(place: Place) -> None:
        peers = [await place.connect() for _ in range(5)]
        for n, peer in enumerate(peers):
            await peer.send(fetch(n), produce(n + 10), plain(n + 20))
        for n in (3, 1, 4, 0, 2):
            place.script.let_go(n)
        for n, peer in enumerate(peers):
            assert await peer.answers(3) == [n, n + 10, n + 20]

    assert on_virtual_time(story, seed=5) == on_virtual_time(story, seed=5)
    assert on_virtual_time(story, seed=5) != on_virtual_time(story, seed=6)
