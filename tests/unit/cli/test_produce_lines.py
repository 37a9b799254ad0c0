"""Lines are read as they arrive, and a reader can stop although its pipe stays open."""

import asyncio
import os

import pytest

from penstock.cli.errors import Failed, Misused
from penstock.cli.produce.deliveries import Deliveries
from penstock.cli.produce.input_lines import CHUNK_BYTES, CHUNKS_AHEAD_MAX, read_lines
from penstock.cli.produce.parsing import BadLine, Outgoing, Splitter
from penstock.client.producer.sender import Delivery


def test_lines_of_a_pipe() -> None:
    async def story() -> list[bytes]:
        reading, writing = os.pipe()
        os.write(writing, b"one\ntw")
        found = read_lines(reading)
        lines = await anext(found)
        os.write(writing, b"o\r\n\nlast")
        os.close(writing)
        async for more in found:
            lines += more
        os.close(reading)
        return lines

    assert asyncio.run(story()) == [b"one", b"two", b"", b"last"]


def test_a_long_input_is_read_to_its_end() -> None:
    size = CHUNK_BYTES * CHUNKS_AHEAD_MAX * 3

    async def story() -> int:
        reading, writing = os.pipe()
        loop = asyncio.get_running_loop()
        wrote = loop.run_in_executor(None, _write_all, writing, b"x" * 99 + b"\n", size // 100)
        count = 0
        async for lines in read_lines(reading):
            count += len(lines)
        await wrote
        os.close(reading)
        return count

    assert asyncio.run(story()) == size // 100


def _write_all(writing: int, line: bytes, count: int) -> None:
    with os.fdopen(writing, "wb") as pipe:
        for _ in range(count):
            pipe.write(line)


def test_a_line_may_end_in_a_later_chunk_but_not_grow_without_end() -> None:
    async def story(size: int, limit: int) -> list[bytes]:
        reading, writing = os.pipe()
        loop = asyncio.get_running_loop()
        wrote = loop.run_in_executor(None, _write_all, writing, b"y" * size + b"\n", 2)
        try:
            return [line async for lines in read_lines(reading, limit) for line in lines]
        finally:
            os.close(reading)
            await asyncio.gather(wrote, return_exceptions=True)

    size = 3 * CHUNK_BYTES + 17
    assert asyncio.run(story(size, size)) == [b"y" * size] * 2
    with pytest.raises(Failed, match=f"a line of the input is longer than {CHUNK_BYTES} bytes"):
        asyncio.run(story(size, CHUNK_BYTES))


def test_lines_become_records() -> None:
    assert Splitter().parse(b"a:b") == Outgoing(None, b"a:b")
    assert Splitter("k").parse(b"v") == Outgoing(b"k", b"v")
    assert Splitter(None, ":").parse(b"a:b:c") == Outgoing(b"a", b"b:c")
    assert Splitter(None, "\\t").parse(b"a\tb") == Outgoing(b"a", b"b")
    assert Splitter(None, ":", empty_is_null=True).parse(b"a:") == Outgoing(b"a", None)
    assert Splitter(headers=(("h", b""),), partition=3).parse(b"") == Outgoing(None, b"", (("h", b""),), 3)


def test_a_line_without_a_delimiter_is_named() -> None:
    splitter = Splitter(None, ":")
    splitter.parse(b"a:b")
    with pytest.raises(BadLine, match="line 2 has no ':'"):
        splitter.parse(b"ab")


@pytest.mark.parametrize(("key", "delimiter"), [("k", ":"), (None, "")])
def test_keys_from_two_places_make_no_sense(key: str | None, delimiter: str) -> None:
    with pytest.raises(Misused):
        Splitter(key, delimiter)


def test_deliveries_are_told_by_partition() -> None:
    async def story() -> Deliveries:
        loop = asyncio.get_running_loop()
        deliveries = Deliveries()
        futures: list[asyncio.Future[Delivery]] = [loop.create_future() for _ in range(5)]
        for future in futures:
            deliveries.watch(future)
        for future, place in zip(futures, [(1, 5), (0, 9), (1, 6), (2, -1)], strict=False):
            future.set_result(Delivery("orders", *place, 0))
        futures[-1].set_exception(OSError("gone"))
        await deliveries.settled()
        return deliveries

    done = asyncio.run(story())
    assert list(map(done.shown, done.rows)) == [
        "orders[0]@9",
        "orders[1]@5-6  2 records",
        "orders[2]  1 record, not acknowledged",
    ]
    assert done.count == 4
    assert str(done.error) == "gone"
