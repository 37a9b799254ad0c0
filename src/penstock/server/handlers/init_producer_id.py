"""InitProducerId: a producer receives an id and an epoch.

Serves    InitProducerId 0–5, for idempotent producers.
Answers   a new id with epoch 0, also to a producer that has one: without a transactional id there is nobody to fence.
Departs   from Kafka 4.3: COORDINATOR_NOT_AVAILABLE for a transactional id until there are transactions.
"""

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.handlers.needs import node_of
from penstock.server.serving import Call, serves
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1


@serves(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    """Gives out the next id."""
    if request.transactional_id == "" or (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await node_of(call).producer_ids.next()
    except ProtocolError as error:
        return _failed(error.code)
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=NONE)
