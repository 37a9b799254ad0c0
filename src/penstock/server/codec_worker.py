"""Decodes large requests and encodes large responses in workers, one at a time for the whole node.

A worker thread shares the interpreter with the event loop, which gives it away with every system call and would wait
long to have it back. So the codec breathes after every few elements: what others ask for meanwhile is hardly delayed.
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
        """To be called by long work, after every few elements."""
        self._budget = request_budget(limits)
        self.inline_budget = Budget(limits.request_inline_elements_max, limits.request_memory_bytes_max)
        """For requests that are decoded on the loop when long work has its turn."""
        self.prompt_budget = Budget(limits.request_prompt_elements_max, limits.request_memory_bytes_max)
        """For requests that are decoded on the loop at once."""
        self._turn = asyncio.Lock()
        self.slots = asyncio.Semaphore(limits.large_requests_max)
        """Held while a large request is decoded and handled; bounds what their decoded forms take together."""

    async def decode(self, request: type[R], version: int, frame: memoryview, position: int) -> R:
        """The request, if it is within the budget; else RequestTooCostly."""
        return await self.run(partial(decode_request, request, version, frame, position, self._budget, self.breathe))

    async def encode(self, response: Response, version: int, correlation_id: int) -> bytearray:
        """The whole frame of a response. Nobody may change the response meanwhile."""
        return await self.run(partial(response_frame, response, version, correlation_id, self.breathe))

    async def encode_request(
        self, request: Request, version: int, correlation_id: int, client_id: str | None
    ) -> bytearray:
        """The whole frame of a request that is passed on. Nobody may change the request meanwhile."""
        return await self.run(partial(request_frame, request, version, correlation_id, client_id, self.breathe))

    async def decode_response(self, response: type[A], version: int, data: memoryview, position: int) -> A:
        """The response of another node."""
        return await self.run(partial(decode, response, version, data, position))

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, which reads or writes a message."""
        async with self._turn:
            return await self._workers.run(work, makes_many=True)
