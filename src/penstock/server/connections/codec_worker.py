"""Decodes large requests and encodes large responses in workers, one at a time for the whole node.

A worker thread shares the interpreter lock with the event loop, which releases the lock with every system call and
would wait long to get it back. So the codec calls `breathe` every few elements, and other requests are hardly delayed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.model.ports import Workers
from penstock.wire.budget import Budget, request_budget
from penstock.wire.codec import decode, decode_request
from penstock.wire.declare import Request, Response
from penstock.wire.headers import request_frame, response_frame

R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Response)
T = TypeVar("T")


class CodecWorker:
    """The queue of large requests and responses, first come, first served."""

    def __init__(self, workers: Workers, limits: Limits = DEFAULT_LIMITS) -> None:
        self._workers = workers
        self.breathe = workers.breathe
        """Long work calls this after every few elements."""
        self._budget = request_budget(limits)
        self.inline_budget = Budget(limits.request_inline_elements_max, limits.request_memory_bytes_max)
        """Budget of requests that are decoded on the loop after a turn of the pacer."""
        self.prompt_budget = Budget(limits.request_prompt_elements_max, limits.request_memory_bytes_max)
        """Budget of requests that are decoded on the loop at once."""
        self._turn = asyncio.Lock()
        self.slots = asyncio.Semaphore(limits.large_requests_max)
        """Held while a large request is decoded and handled; bounds the total memory of decoded large requests."""

    async def decode(self, request: type[R], version: int, frame: memoryview, position: int) -> R:
        """Decodes a request; raises RequestTooCostly if it exceeds the budget."""
        return await self.run(partial(decode_request, request, version, frame, position, self._budget, self.breathe))

    async def encode(self, response: Response, version: int, correlation_id: int) -> bytearray:
        """Encodes the whole frame of a response, which must not change meanwhile."""
        return await self.run(partial(response_frame, response, version, correlation_id, self.breathe))

    async def encode_request(
        self, request: Request, version: int, correlation_id: int, client_id: str | None
    ) -> bytearray:
        """Encodes the whole frame of a forwarded request, which must not change meanwhile."""
        return await self.run(partial(request_frame, request, version, correlation_id, client_id, self.breathe))

    async def decode_response(self, response: type[A], version: int, data: memoryview, position: int) -> A:
        """Decodes the response of another node."""
        return await self.run(partial(decode, response, version, data, position))

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work`, which decodes or encodes a message, in a worker and returns its result."""
        async with self._turn:
            return await self._workers.run(work, makes_many=True)
