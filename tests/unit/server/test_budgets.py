"""Connections and expensive requests: refused early, or decoded by workers while others are served."""

import asyncio
import struct
from pathlib import Path

import pytest

from penstock.model.limits import MIB, Limits
from penstock.model.ports import Workers
from penstock.server.connections.codec_worker import CodecWorker
from penstock.simulator.loop import new_loop
from penstock.wire.codec import encode
from penstock.wire.compile import BREATH_ELEMENTS
from penstock.wire.headers import response_frame
from penstock.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.unit.server.conftest import Drive, on_real_sockets, on_virtual_time
from tests.unit.server.shell import LENGTH, Place, commit, fetch, plain, produce, told


def test_a_request_over_its_budget_ends_the_connection(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        for frame in (plain(1, 50_000), commit(1, 50_000)):
            peer = await place.connect()
            await peer.send(plain(7), frame)
            assert await peer.answers(1) == [7], "what came before is answered"
            assert await peer.receive() is None
        assert place.script.began == [7, 7]

    drive(story, request_elements_max=40_000)
    sentences = told(caplog)
    assert "its ListOffsets request of version 6 costs too much" in sentences[0]
    assert "(40,000 elements, 6,291,456 bytes of memory); have it send several smaller requests" in sentences[0]


def test_requests_below_the_budget_are_answered_whatever_their_size(drive: Drive) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(plain(1, 20_000), commit(2, 20_000), produce(3), plain(4, 2), commit(5, 2), commit(6, 5_000))
        assert await peer.answers(6) == [1, 2, 3, 4, 5, 6]
        assert place.script.began == [1, 2, 3, 4, 5, 6], "in the order of arrival, however long decoding takes"
        assert place.script.sizes == [20_000, 2, 5_000]

    drive(story)


def test_a_large_request_without_records_is_refused_by_its_first_bytes(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    """The node does not wait for a hundred megabytes of topics."""

    async def story(place: Place) -> None:
        metadata = await place.connect()
        await metadata.send(LENGTH.pack(90 * MIB) + struct.pack(">hh", 3, 12))
        assert await metadata.receive() is None
        behind_others = await place.connect()
        await behind_others.send(plain(1), LENGTH.pack(17 * MIB) + struct.pack(">hh", 2, 6))
        assert await behind_others.answers(1) == [1]
        assert await behind_others.receive() is None
        producer = await place.connect()
        await producer.send(LENGTH.pack(90 * MIB) + struct.pack(">hh", 0, 13))
        await place.settle()
        assert len(place.node.listeners.doors["PLAINTEXT"][0]) == 1, "records may take that much"

    drive(story)
    assert "a request with API key 3 announces 94,371,840 bytes; allowed are 16,777,216" in told(caplog)[0]


def test_thousands_of_tags_in_a_header_end_the_connection(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        head = struct.pack(">hhih", 2, 6, 5, 2) + b"me" + b"\xff\xff\x03" + b"\x63\x00" * 65_535
        await peer.send(LENGTH.pack(len(head)) + head)
        assert await peer.receive() is None

    drive(story)
    assert "the header of its ListOffsets request costs too much" in told(caplog)[0]


def test_only_so_many_large_requests_are_under_way(drive: Drive) -> None:
    async def story(place: Place) -> None:
        place.script.shut += [1, 2, 3]
        peers = [await place.connect() for _ in range(3)]
        for number, peer in enumerate(peers, 1):
            await peer.send(plain(number, 5_000))
            await place.until(lambda: len(place.script.began) == min(number, 2))  # noqa: B023 - called at once
        await place.settle()
        assert place.script.began == [1, 2]
        small = await place.connect()
        await small.send(plain(7, 2), commit(8))
        assert await small.answers(2) == [7, 8], "small ones need no slot"
        place.script.let_go(1)
        await place.until(lambda: place.script.began[-1] == 3)
        place.script.let_go(2, 3)
        assert await peers[2].answers(1) == [3]

    drive(story, large_requests_max=2)


def test_a_client_that_goes_leaves_its_slot_to_others(drive: Drive) -> None:
    async def story(place: Place) -> None:
        place.script.shut += [1]
        gone, other = await place.connect(), await place.connect()
        await gone.send(plain(1, 5_000))
        await place.until(lambda: place.script.began)
        await other.send(plain(2, 5_000))
        await place.settle()
        for connection in place.node.listeners.doors["PLAINTEXT"][0]:
            if connection.number == 1 and connection.task is not None:
                connection.task.cancel()
        assert await other.answers(1) == [2]

    drive(story, large_requests_max=1)


def test_large_answers_are_made_by_workers(drive: Drive) -> None:
    async def story(place: Place) -> None:
        made: list[object] = []
        encode = place.node.codec.encode

        async def noted(response: ListOffsetsResponse, version: int, correlation_id: int) -> bytearray:
            made.append(response)
            return await encode(response, version, correlation_id)

        place.node.codec.encode = noted  # type: ignore[method-assign,assignment]
        peer = await place.connect()
        place.script.answered_partitions = 100
        await peer.send(plain(1))
        small = await peer.receive()
        assert not made
        place.script.answered_partitions = 5_000
        await peer.send(plain(2))
        large = await peer.receive()
        assert small is not None
        assert large is not None
        assert len(made) == 1
        assert len(large) > 40 * len(small)

    drive(story)


def test_an_answer_over_the_limit_ends_the_connection(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        place.script.answered_partitions = 5_000
        await peer.send(plain(1))
        assert await peer.receive() is None

    drive(story, response_bytes_max=100_000)
    assert "the answer to its ListOffsets request has" in told(caplog)[0]


def test_large_frames_do_not_take_the_room_of_small_ones(drive: Drive) -> None:
    """Parts of a few large frames used to fill the input pool, and no other client could send."""

    async def story(place: Place) -> None:
        sending = []
        for _ in range(6):
            large = await place.connect()
            sending.append(asyncio.create_task(large.send(produce(1, bytes(2_000_000))[:1_900_000])))
        await place.until(lambda: place.node.listeners.large_pool.waiting)
        peer = await place.connect()
        for number in range(1, 6):
            await peer.send(produce(number, bytes(60_000)))
            assert await peer.answers(1) == [number]
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    drive(story, frame_large_bytes=MIB, input_pool_bytes_max=3 * MIB, large_input_pool_bytes_max=3 * MIB)


def test_large_frames_of_many_connections_are_all_served(drive: Drive) -> None:
    async def story(place: Place) -> None:
        async def client() -> None:
            peer = await place.connect()
            sending = asyncio.create_task(peer.send(*(produce(n, bytes(150_000 * (n % 3))) for n in range(10))))
            assert await peer.answers(10) == list(range(10))
            await sending

        await asyncio.gather(*(client() for _ in range(8)))

    drive(story, frame_large_bytes=100_000, input_pool_bytes_max=300_000, large_input_pool_bytes_max=400_000)


def test_a_large_request_gives_the_room_of_its_frame_back_when_it_is_decoded(drive: Drive) -> None:
    async def story(place: Place) -> None:
        place.script.shut += [1]
        peer = await place.connect()
        await peer.send(plain(1, 20_000))
        await place.until(lambda: place.script.began == [1])
        assert place.node.listeners.pool.used_bytes <= 300_000, "at most a lent buffer"
        assert all(not connection._held_bytes for connection in place.node.listeners.doors["PLAINTEXT"][0])
        place.script.let_go(1)
        assert await peer.answers(1) == [1]

    drive(story)


def test_a_large_fetch_that_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        await peer.send(fetch(1), commit(2, 10_000))
        await place.settle()
        peer.close()
        await place.until(lambda: place.script.cancelled == [1])

    on_real_sockets(tmp_path, story)


def test_what_workers_do_is_the_same_every_time() -> None:
    async def story(place: Place) -> None:
        async def client() -> None:
            peer = await place.connect()
            await peer.send(plain(1, 5_000), commit(2, 5_000), produce(3))
            assert await peer.answers(3) == [1, 2, 3]

        await asyncio.gather(*(client() for _ in range(5)))

    assert on_virtual_time(story, seed=3) == on_virtual_time(story, seed=3)


def test_large_messages_are_read_and_written_one_at_a_time_by_workers_that_breathe() -> None:
    under_way: list[int] = []
    most = breaths = 0

    class Slow(Workers):
        def breathe(self) -> None:
            nonlocal breaths
            breaths += 1

        async def run(self, work, *, makes_many=False):  # type: ignore[no-untyped-def]
            nonlocal most
            assert makes_many
            under_way.append(1)
            most = max(most, len(under_way))
            await asyncio.sleep(0.1)
            under_way.pop()
            return work()

    async def story() -> None:
        codec = CodecWorker(Slow(), Limits())
        names = [ListOffsetsTopic(name="t", partitions=()) for _ in range(1_000)]
        body = memoryview(encode(ListOffsetsRequest(replica_id=-1, topics=names), 6))
        await asyncio.gather(*(codec.decode(ListOffsetsRequest, 6, body, 0) for _ in range(3)))
        assert breaths == 3 * (1_000 // BREATH_ELEMENTS)
        topics = [ListOffsetsTopicResponse(name="t", partitions=()) for _ in range(1_000)]
        response = ListOffsetsResponse(topics=topics)
        assert await codec.encode(response, 6, 1) == response_frame(response, 6, 1)
        assert breaths == 4 * (1_000 // BREATH_ELEMENTS)

    loop = new_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()
    assert most == 1
