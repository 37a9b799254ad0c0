"""Lines of a file or of standard input, read by a thread so that the event loop does not block."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

from penstock.cli.errors import Failed

CHUNK_BYTES = 256 * 1024
CHUNKS_AHEAD_MAX = 8
LINE_BYTES_MAX = 256 * 1024 * 1024
"""Far more than a record may have; a larger line would only fill the memory."""


async def read_lines(descriptor: int, line_bytes_max: int = LINE_BYTES_MAX) -> AsyncIterator[list[bytes]]:
    """Yields lines without their line ends, several at a time as they arrive; the last one need not have a line end."""
    begun: list[bytes] = []
    begun_bytes = 0
    async for chunk in _read_chunks(descriptor):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > line_bytes_max:
            raise Failed(f"a line of the input is longer than {line_bytes_max} bytes: no record is as large")
        if others:
            lines = [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
            begun_bytes = len(others[-1])
            yield [line.removesuffix(b"\r") for line in lines]
    if begun_bytes:
        yield [b"".join(begun)]


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
            except RuntimeError:  # the loop is closed: no consumer is left
                return

    # A daemon, and no buffered file: a thread that waits for a terminal must not keep the process from exiting.
    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        chunk = await queue.get()
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk
