"""Requests of one connection: overlap, waiting, and the order of responses."""

import asyncio
import struct
from itertools import pairwise
from pathlib import Path

from penstock.host.memory import MemoryDisk
from penstock.model.ports import FileSlice
from tests.unit.server.conftest import Drive, on_real_sockets
from tests.unit.server.shell import Place, fetch, plain, produce, reply


def test_answers_come_in_the_order_of_requests_whatever_finishes_first(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(*(fetch(n) for n in range(5)))
        await place.until(lambda: place.script.began == [0, 1, 2, 3, 4])
        for n in (4, 2, 1, 3, 0):
            place.script.let_go(n)
            await place.settle()
        assert place.script.ended == [4, 2, 1, 3, 0]
        assert await peer.answers(5) == [0, 1, 2, 3, 4]

    drive(story)


def test_a_long_poll_does_not_hold_up_what_comes_behind_it_but_its_answer_comes_first(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(fetch(1))
        await place.until(lambda: place.script.began == [1])
        await peer.send(produce(2), produce(3))
        await place.until(lambda: place.script.ended == [2, 3])
        place.script.let_go(1)
        assert await peer.answers(3) == [1, 2, 3]

    drive(story)


def test_another_connection_is_answered_meanwhile(drive: Drive) -> None:
    async def story(place: Place) -> None:
        one, other = await place.connect(), await place.connect()
        await one.send(fetch(1))
        await other.send(produce(2), plain(3))
        assert await other.answers(2) == [2, 3]
        place.script.let_go(1)
        assert await one.answers(1) == [1]

    drive(story)


def test_a_plain_request_waits_for_everything_before_it(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(fetch(1), produce(2), plain(3), produce(4))
        await place.until(lambda: place.script.began == [1, 2])
        await place.settle()
        assert place.script.began == [1, 2]
        place.script.let_go(1)
        assert await peer.answers(4) == [1, 2, 3, 4]
        assert place.script.began == [1, 2, 3, 4]

    drive(story)


def test_nothing_starts_while_a_plain_request_is_under_way(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        place.script.shut += [1]
        await peer.send(plain(1), produce(2), fetch(3))
        await place.until(lambda: place.script.began == [1])
        await place.settle()
        assert place.script.began == [1]
        place.script.let_go(1, 3)
        assert await peer.answers(3) == [1, 2, 3]

    drive(story)


def test_first_stages_run_in_the_order_of_arrival_even_if_one_of_them_waits(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        place.script.shut += [1]
        await peer.send(produce(1), produce(2))
        await place.until(lambda: place.script.began == [1])
        await place.settle()
        assert place.script.began == [1]
        place.script.let_go(1)
        assert await peer.answers(2) == [1, 2]
        assert place.script.ended == [1, 2]

    drive(story)


def test_who_wants_no_answer_gets_none_alone_or_behind_others(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(produce(1, b"acks=0"), produce(2), fetch(3), produce(4, b"acks=0"), produce(5, b"acks=0"))
        await place.until(lambda: place.script.ended == [1, 2, 4, 5])
        place.script.let_go(3)
        await place.settle()
        await peer.send(plain(6))
        assert await peer.answers(3) == [2, 3, 6]

    drive(story)


def test_no_more_is_read_than_may_be_under_way(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        for n in range(8):
            await peer.send(fetch(n, bytes(5_000)))
        await place.until(lambda: place.script.began == [0, 1, 2])
        await place.settle()
        assert place.script.began == [0, 1, 2]
        place.script.let_go(1)
        await place.settle()
        assert place.script.began == [0, 1, 2], "the first is not answered yet"
        place.script.let_go(0)
        await place.until(lambda: place.script.began == [0, 1, 2, 3, 4])
        place.script.let_go(2, 3, 4, 5, 6, 7)
        assert await peer.answers(8) == list(range(8))

    drive(story, requests_under_way_max=3)


def test_a_client_that_goes_takes_along_what_it_waited_for(drive: Drive) -> None:
    async def story(place: Place) -> None:
        disk = MemoryDisk()
        file = disk.open("file", create=True)
        file.write(0, b"records")
        held = FileSlice(file, 0, 7)
        file.close()
        peer = await place.connect()
        await peer.send(*(fetch(n, bytes(100_000)) for n in range(3)))
        await place.until(lambda: len(place.script.began) == 3)
        await place.until(
            lambda: not place.node.listeners.pool.used_bytes
        )  # a waiting request holds nothing of its frame
        place.script.gate(1).set_result([reply(1, bytes(7))[:-7], held])
        await place.until(lambda: place.script.ended == [1])
        peer.close()
        await place.until(lambda: not len(place.node.listeners.doors["PLAINTEXT"][0]))
        assert place.script.cancelled == [0, 2]
        assert place.node.listeners.pool.used_bytes == 0
        assert disk.open_count == 0, "a slice that nobody will get is still held"

    drive(story)


def test_a_mistake_of_ours_ends_its_connection_and_no_other(drive: Drive) -> None:
    async def story(place: Place) -> None:
        one, other = await place.connect(), await place.connect()
        await one.send(fetch(1), fetch(2))
        await place.until(lambda: place.script.began == [1, 2])
        place.script.gate(2).set_exception(RuntimeError("a planted mistake"))
        assert await one.receive() is None
        assert place.script.cancelled == [1]
        await other.send(plain(3))
        assert await other.answers(1) == [3]

    drive(story)


def test_a_busy_client_lets_others_have_their_turn(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        busy = await place.connect()
        turns: list[int] = []

        async def somebody_else() -> None:
            while len(place.script.began) < 3_000:
                if not turns or turns[-1] != len(place.script.began):
                    turns.append(len(place.script.began))
                await asyncio.sleep(0)

        other = asyncio.create_task(somebody_else())
        await busy.send(*(produce(n) for n in range(3_000)))
        assert await busy.answers(3_000) == list(range(3_000))
        await other
        assert max(b - a for a, b in pairwise([*turns, 3_000])) <= 64

    on_real_sockets(tmp_path, story)


def test_answers_that_are_ready_leave_together_and_before_a_request_that_breaks_the_rules(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(*(produce(n) for n in range(5)), struct.pack(">ihhih", 10, 999, 0, 7, -1))
        assert await peer.answers(5) == list(range(5))
        assert await peer.receive() is None

    drive(story)
