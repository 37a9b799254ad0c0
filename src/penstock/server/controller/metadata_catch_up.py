"""Read-your-writes for metadata: a reply waits until this broker has applied the change.

The active controller may be another node, whose response can arrive before its records in the metadata log.
"""

import asyncio
from contextlib import suppress
from typing import Final

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.topic_creation import arrival
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.wire.declare import Request, Response
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsResponse

CATCHING_UP_S: Final = 2.0
"""After this time the reply is sent all the same: this broker may lag, or the change was already replaced."""


async def catch_up(request: Request, response: Response, controller: ControllerRunner, arrivals: TopicArrivals) -> None:
    """Returns when this broker has applied the answered change, or when that takes too long."""
    with suppress(TimeoutError, ProtocolError):
        async with asyncio.timeout(CATCHING_UP_S):
            match request, response:
                case CreateTopicsRequest(validate_only=False), CreateTopicsResponse():
                    made = [topic.name for topic in response.topics if topic.error_code is ErrorCode.NONE]
                    await arrival(controller, arrivals, made)
                case CreatePartitionsRequest(validate_only=False), CreatePartitionsResponse():
                    grown = [each.name for each in response.results if each.error_code is ErrorCode.NONE]
                    counts = {topic.name: topic.count for topic in request.topics if topic.name in grown}
                    await controller.until(lambda: _has(controller, counts))
                    await arrivals.settled(grown)
                case _, DeleteTopicsResponse():
                    ids = [each.topic_id for each in response.responses if each.error_code is ErrorCode.NONE]
                    await controller.until(lambda: not any(controller.image.topic_by_id(each) for each in ids))


def _has(controller: ControllerRunner, counts: dict[str, int]) -> bool:
    topics = controller.image.topics
    return all(name in topics and len(topics[name].partitions) >= count for name, count in counts.items())
