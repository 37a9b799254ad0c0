"""Writes to standard output by a thread, so that a slow reader of a pipe does not stop heartbeats and warnings."""

import asyncio
import os
import queue
import threading


class StandardOutput:
    """See the module. One writer at a time."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.descriptor = descriptor
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._last: asyncio.Future[None] | None = None
        # A daemon, and no buffered file: a thread that waits for a reader must not keep the process from exiting.
        threading.Thread(target=self._run, name="output", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Returns when everything is written; raises BrokenPipeError when the reader is gone."""
        self._last = self._loop.create_future()
        self._work.put((data, self._last))
        await asyncio.shield(self._last)

    async def has_written(self, timeout_s: float) -> bool:
        """Whether the last write was completed, or is within this time; for a caller whose write was cancelled."""
        if self._last is None:
            return True
        await asyncio.wait([self._last], timeout=timeout_s)
        return self._last.done() and self._last.exception() is None

    def _run(self) -> None:
        while True:
            data, written = self._work.get()
            error: OSError | None = None
            try:
                _write_all(self.descriptor, data)
            except OSError as failed:
                error = failed
            try:
                self._loop.call_soon_threadsafe(_settle, written, error)
            except RuntimeError:  # the loop is closed: nobody waits
                return


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _settle(written: "asyncio.Future[None]", error: OSError | None) -> None:
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
