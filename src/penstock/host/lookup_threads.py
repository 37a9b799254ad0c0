"""Resolves host names in threads of their own, so that a name server that does not answer delays nobody else.

A lookup cannot be cancelled and may take half a minute. So no lookup waits for another one, and closing the client
waits for none: the threads are daemons.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread  # determinism: only the host's network resolves names
from typing import Any, TypeVar

T = TypeVar("T")


class LookupThreads:
    """Workers (see `model.ports`) with a thread for each call."""

    def run(self, work: Callable[[], T], *, makes_many: bool = False) -> "asyncio.Future[T]":  # noqa: ARG002
        """Result or exception of `work`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        Thread(target=_work, args=(work, future), name="penstock-lookup", daemon=True).start()
        return future

    def breathe(self) -> None:
        """Does nothing: lookups do not compute."""


def _work(work: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
    try:
        deliver = partial(_succeed, future, work())
    except BaseException as error:
        deliver = partial(_fail, future, error)
    with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
        future.get_loop().call_soon_threadsafe(deliver)  # determinism: only the host's network resolves names


def _succeed(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.cancelled():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
