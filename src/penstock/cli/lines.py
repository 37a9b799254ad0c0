"""Lines of a file or of standard input, read by a thread so that nobody else waits."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

CHUNK_BYTES = 256 * 1024
CHUNKS_AHEAD_MAX = 8


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as they come, some at a time; the last one need not have an end."""
    rest = b""
    async for chunk in _read_chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


async def _read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD_MAX)

    def read() -> None:
        chunk: bytes | OSError = b" "
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: whoever wanted lines has left
                return

    # A daemon, and no buffered file: a thread that waits for a terminal must not keep the process from ending.
    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        chunk = await queue.get()
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk
