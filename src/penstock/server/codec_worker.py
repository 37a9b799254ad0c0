"""Decodes large requests and encodes large responses in workers, one at a time for the whole node.

A worker thread shares the interpreter with the event loop. So that clients that send costly requests cannot take half
of it, each piece of work is followed by a rest of a few times its length, in which no other begins.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from penstock.model.limits import DEFAULT_LIMITS, Limits
from penstock.model.ports import Workers
from penstock.wire.budget import request_budget
from penstock.wire.codec import decode, decode_request
from penstock.wire.declare import Request, Response
from penstock.wire.headers import request_frame, response_frame

REST_TIMES: Final = 3
REST_S_MAX: Final = 0.5
R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Response)
T = TypeVar("T")


class CodecWorker:
    """The queue of large requests and responses, first come, first served."""

    def __init__(self, workers: Workers, limits: Limits = DEFAULT_LIMITS) -> None:
        self._workers = workers
        self._budget = request_budget(limits)
        self._turn = asyncio.Lock()
        self.slots = asyncio.Semaphore(limits.large_requests_max)
        """Held while a large request is decoded and handled; bounds what their decoded forms take together."""
        self._rests_until_s = 0.0

    async def decode(self, request: type[R], version: int, frame: memoryview, position: int) -> R:
        """The request, if it is within the budget; else RequestTooCostly."""
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
            rest_s = self._rests_until_s - time()
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            began_s = time()
            try:
                return await self._workers.run(work)
            finally:
                ended_s = time()
                self._rests_until_s = ended_s + min(REST_S_MAX, REST_TIMES * (ended_s - began_s))
