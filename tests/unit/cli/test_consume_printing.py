"""What a member of a group has printed when it is interrupted is read; what it has not printed is not."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.cli.consume.standard_output import StandardOutput


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The read end and the write end of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def play(story: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await story()

    return asyncio.run(main())


def test_everything_is_written_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

    async def story() -> None:
        output = StandardOutput(writing)
        await output.write(b"one\n")
        await output.write(b"two\n")

    play(story)
    assert os.read(reading, 100) == b"one\ntwo\n"


def test_the_loop_runs_while_a_reader_is_slow(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    data = bytes(1_000_000)

    async def story() -> int:
        sent = asyncio.ensure_future(StandardOutput(writing).write(data))
        ticks = read = 0
        while not sent.done():
            await asyncio.sleep(0.001)
            ticks += 1
            if ticks > 20:
                read += len(os.read(reading, 100_000))
        return read

    assert play(story) > 0


def test_an_interrupted_write_is_known_to_be_complete_or_not(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

    async def interrupted(data: bytes) -> bool:
        output = StandardOutput(writing)
        sent = asyncio.ensure_future(output.write(data))
        await asyncio.sleep(0)
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
        return await output.has_written(5.0 if len(data) < 1000 else 0.1)

    assert play(lambda: interrupted(b"short")) is True
    assert os.read(reading, 100) == b"short"
    assert play(lambda: interrupted(bytes(1_000_000))) is False
    while len(os.read(reading, 1_000_000)) == 65536:
        pass
