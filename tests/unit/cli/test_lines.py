"""Lines are read as they come, and a reader that leaves is not held back by a pipe that stays open."""

import asyncio
import os

from penstock.cli.deliveries import Deliveries
from penstock.cli.lines import CHUNK_BYTES, CHUNKS_AHEAD_MAX, read_lines
from penstock.client.sender import Delivery


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
