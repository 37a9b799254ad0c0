"""Ends a command quietly when the reader of its output closes the pipe.

A write to a closed pipe fails, but a command that waits for records writes nothing; so the pipe is watched.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def until_reader_leaves(descriptor: int) -> AsyncIterator[None]:
    """Ends the block quietly when the reader of the descriptor closes it; without effect if it is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        yield
        return
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        loop.remove_reader(descriptor)
        task.cancel()

    loop.add_reader(descriptor, leave)  # a write end becomes readable only when the read end closes
    try:
        yield
    except BrokenPipeError:
        abandon()
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        abandon()
    finally:
        loop.remove_reader(descriptor)


def abandon() -> None:
    """Discards the remaining output; otherwise the interpreter would report an error when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
