"""InitProducerId: allocates a producer id and an epoch.

Serves    InitProducerId 0–5, for idempotent producers.
Answers   a new id with epoch 0, even if the producer has one: without a transactional id there is no other producer to
          fence.
Departs   from Kafka 4.3: COORDINATOR_NOT_AVAILABLE for a transactional id until there are transactions.
"""

from typing import Protocol

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.serving import Call, serves
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1


class ProducerIds(Protocol):
    """Allocates producer ids from the controller's blocks, so that no id is ever allocated twice."""

    async def next(self) -> int:
        """An id that no producer has. ProtocolError if none is available now."""


class InitProducerIdHandler:
    """Allocates ids to producers."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    @serves(InitProducerIdRequest)
    async def init_producer_id(self, request: InitProducerIdRequest, _call: Call) -> InitProducerIdResponse:
        """Allocates the next id."""
        if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
            return _failed(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            producer_id = await self._producer_ids.next()
        except ProtocolError as error:
            return _failed(error.code)
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
        )


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=NONE)
