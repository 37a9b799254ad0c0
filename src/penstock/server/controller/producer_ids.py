"""Producer ids for this node, from blocks that the controller allocates.

A block belongs to one node forever, so no id is allocated twice. The rest of a block is lost when the node stops.
"""

import asyncio

from penstock.model.errors import ErrorCode, ProtocolError, StorageError
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class NoProducerId(ProtocolError):
    """No block is available now; the client retries."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ProducerIds:
    """Allocates ids one after the other."""

    def __init__(self, controller: ControllerRunner, channel: ControllerChannel) -> None:
        self._controller = controller
        self._channel = channel
        self._next = 0
        self._end = 0
        self._filling = asyncio.Lock()

    async def next(self) -> int:
        """Returns an unused id."""
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
        request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=epoch)
        block = await self._channel.ask(request, AllocateProducerIdsResponse)
        if block.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageError("the controller is offline, and gives no producer ids")
        if block.error_code:
            raise NoProducerId(f"the controller gives no producer ids: {block.error_code.name}")
        self._next = block.producer_id_start
        self._end = self._next + block.producer_id_len
