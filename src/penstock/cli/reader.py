"""Who reads what a command prints: when a pipe's other end closes, nobody needs to know more.

A write to a closed pipe fails, but a command that waits for records writes nothing; so the pipe is watched.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def until_reader_leaves(descriptor: int) -> AsyncIterator[None]:
    """What is inside ends quietly when whoever reads from the descriptor has left; if it is no pipe, never."""
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

    loop.add_reader(descriptor, leave)  # nothing ever comes out of the writing end, but its closing does
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
    """What is still to be printed goes nowhere; else the interpreter would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
