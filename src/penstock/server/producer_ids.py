"""Producer ids for this node, out of blocks that the controller gives out.

A block belongs to one node for good, so no id is ever given twice; what is left of one when the node stops is lost.
"""

import asyncio

from penstock.metadata.commands import AllocateProducerIds
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.controller_runner import ControllerRunner


class NoProducerId(ProtocolError):
    """No block can be had now; the client asks again."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIds:
    """Gives out one id after the other."""

    def __init__(self, controller: ControllerRunner) -> None:
        self._controller = controller
        self._next = 0
        self._end = 0
        self._filling = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody has."""
        while self._next == self._end:
            async with self._filling:
                if self._next == self._end:
                    await self._fill()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _fill(self) -> None:
        node_id = self._controller.node_id
        broker = self._controller.image.brokers.get(node_id)
        epoch = -1 if broker is None else broker.epoch
        block = await self._controller.ask(AllocateProducerIds(node_id, epoch))
        if block.code:
            raise NoProducerId(block.message)
        self._next, self._end = block.first, block.first + block.count
