"""Whoever is told by a broker that something was changed finds it changed at that broker.

The active controller may be another node; its answer can be here before the metadata log is.
"""

import asyncio
from contextlib import suppress
from typing import Final

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.adoption import Adoption
from penstock.server.controller_runner import ControllerRunner
from penstock.server.topic_creation import arrival
from penstock.wire.declare import Request, Response
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsResponse

CATCHING_UP_S: Final = 2.0
"""Who is that far behind answers all the same; somebody may have changed it again, too."""


async def catch_up(request: Request, response: Response, controller: ControllerRunner, adoption: Adoption) -> None:
    """Returns when what was answered can be seen here, or when that takes too long."""
    with suppress(TimeoutError, ProtocolError):
        async with asyncio.timeout(CATCHING_UP_S):
            match request, response:
                case CreateTopicsRequest(validate_only=False), CreateTopicsResponse():
                    made = [topic.name for topic in response.topics if topic.error_code is ErrorCode.NONE]
                    await arrival(controller, adoption, made)
                case CreatePartitionsRequest(validate_only=False), CreatePartitionsResponse():
                    grown = [each.name for each in response.results if each.error_code is ErrorCode.NONE]
                    counts = {topic.name: topic.count for topic in request.topics if topic.name in grown}
                    await controller.until(lambda: _has(controller, counts))
                    await adoption.settled(grown)
                case _, DeleteTopicsResponse():
                    ids = [each.topic_id for each in response.responses if each.error_code is ErrorCode.NONE]
                    await controller.until(lambda: not any(controller.image.topic_by_id(each) for each in ids))


def _has(controller: ControllerRunner, counts: dict[str, int]) -> bool:
    topics = controller.image.topics
    return all(name in topics and len(topics[name].partitions) >= count for name, count in counts.items())
