"""Decodes large requests and encodes large responses in workers, one at a time for the whole node.

A worker thread shares the interpreter with the event loop. So that clients that send costly requests cannot take half
of it, each piece of work is followed by a rest of many times its length, in which no other request is decoded: a single
large request is not delayed, many are. Responses do not wait for rests.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.model.ports import Workers
from penstock.wire.budget import Budget, request_budget
from penstock.wire.codec import decode, decode_request
from penstock.wire.declare import Request, Response
from penstock.wire.headers import request_frame, response_frame

REST_TIMES: Final = 20
REST_S_MAX: Final = 2.0
R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Response)
T = TypeVar("T")


class CodecWorker:
    """The queue of large requests and responses, first come, first served."""

    def __init__(self, workers: Workers, limits: Limits = DEFAULT_LIMITS) -> None:
        self._workers = workers
        self._budget = request_budget(limits)
        self.inline_budget = Budget(limits.request_inline_elements_max, limits.request_memory_bytes_max)
        """For requests that are decoded on the loop."""
        self._rested = asyncio.Lock()
        self._turn = asyncio.Lock()
        self.slots = asyncio.Semaphore(limits.large_requests_max)
        """Held while a large request is decoded and handled; bounds what their decoded forms take together."""
        self._rests_until_s = 0.0

    async def decode(self, request: type[R], version: int, frame: memoryview, position: int) -> R:
        """The request, if it is within the budget; else RequestTooCostly."""
        async with self._rested:
            rest_s = self._rests_until_s - asyncio.get_running_loop().time()
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            return await self.run(partial(decode_request, request, version, frame, position, self._budget))

    async def encode(self, response: Response, version: int, correlation_id: int) -> bytearray:
        """The whole frame of a response. Nobody may change the response meanwhile."""
        return await self.run(partial(response_frame, response, version, correlation_id))

    async def encode_request(
        self, request: Request, version: int, correlation_id: int, client_id: str | None
    ) -> bytearray:
        """The whole frame of a request that is passed on. Nobody may change the request meanwhile."""
        return await self.run(partial(request_frame, request, version, correlation_id, client_id))

    async def decode_response(self, response: type[A], version: int, data: memoryview, position: int) -> A:
        """The response of another node."""
        return await self.run(partial(decode, response, version, data, position))

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, which reads or writes a message."""
        time = asyncio.get_running_loop().time
        async with self._turn:
            began_s = time()
            try:
                return await self._workers.run(work, makes_many=True)
            finally:
                ended_s = time()
                rest_s = max(0.0, self._rests_until_s - ended_s) + REST_TIMES * (ended_s - began_s)
                self._rests_until_s = ended_s + min(REST_S_MAX, rest_s)
