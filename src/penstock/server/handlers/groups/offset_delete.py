"""OffsetDelete: deletes committed offsets of a group.

Serves    OffsetDelete 0.
Answers   the decision of the group's coordinator (`coordinator/offsets.py`). A partition that does not exist fails
          alone, with UNKNOWN_TOPIC_OR_PARTITION.
Departs   nowhere from Kafka 4.3. Many partitions are deleted in several batches.
"""

from collections.abc import Container
from typing import Final

from penstock.coordinator.settings import TOMBSTONES_MAX
from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.group_answer import asked_by
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.loop.pieces import Turns, cut, partitions_once
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_MISSING: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OffsetDeleteHandler:
    """Serves deletions of committed offsets."""

    def __init__(self, groups: GroupCoordinator, controller: ControllerRunner) -> None:
        self._groups = groups
        self._controller = controller

    @serves(OffsetDeleteRequest)
    async def offset_delete(self, request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
        """Deletes committed offsets of a group."""
        shard, code = self._groups.place(request.group_id)
        if shard is None:
            return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=())
        turns, image = Turns(), self._controller.image
        entries = ((topic.name, each.partition_index, each) for topic in request.topics for each in topic.partitions)
        named = await partitions_once(entries, turns)
        told: dict[str, list[OffsetDeleteResponsePartition]] = {}
        known: list[tuple[str, OffsetDeleteRequestPartition]] = []
        for name, partitions in named.topics.items():
            found = image.topics.get(name)
            placed: Container[int] = () if found is None else found.partitions
            async for index, each in turns.through(partitions.items()):
                if index in placed:
                    known.append((name, each))
                else:
                    missing = OffsetDeleteResponsePartition(partition_index=index, error_code=_MISSING)
                    told.setdefault(name, []).append(missing)
        for part in list(cut(known, TOMBSTONES_MAX // 2)) or [()]:
            grouped: dict[str, list[OffsetDeleteRequestPartition]] = {}
            for name, each in part:
                grouped.setdefault(name, []).append(each)
            topics = [OffsetDeleteRequestTopic(name=name, partitions=found) for name, found in grouped.items()]
            asked = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
            reply, code = await self._groups.ask(shard, asked_by(call, asked), 1 + len(part))
            if reply is None:
                return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=())
            if reply.error_code:
                return reply
            for topic in reply.topics:
                told.setdefault(topic.name, []).extend(topic.partitions)
        return OffsetDeleteResponse(
            error_code=ErrorCode.NONE,
            throttle_time_ms=0,
            topics=[
                OffsetDeleteResponseTopic(name=name, partitions=partitions)
                async for name, partitions in turns.through(told.items())
            ],
        )
