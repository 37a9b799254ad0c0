"""OffsetFetch: returns committed offsets of groups.

Serves    OffsetFetch 1–10; several groups from version 8 on, topic ids from version 10 on.
Answers   the reply of the group's coordinator (`coordinator/offsets.py`). A topic id that does not exist fails alone,
          with UNKNOWN_TOPIC_ID.
Departs   from Kafka 4.3: `require_stable` has no effect until there are transactions; a group that is named several
          times with all its topics is answered once, and so is a partition that is named several times; the connection
          of a librdkafka client is closed if this node does not coordinate the group, because the client would not
          retry after the error.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.coordinator.requests import PlacesOf
from penstock.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.group_answer import asked_by
from penstock.server.groups.group_coordinator import GroupCoordinator
from penstock.server.groups.group_shard import DrivenShard
from penstock.server.loop.pieces import PIECE_ELEMENTS, Turns, cut, cut_by_weight, in_order
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FIRST_WITH_IDS: Final = 10
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_GROUP_ERROR: Final = 2
GROUP_ELEMENTS: Final = 5
"""Elements of `pieces` that one group counts as."""
Named: TypeAlias = tuple[str, str, bytes, int]
"""A group, a topic by name or id, and a partition."""
_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class OffsetFetchHandler:
    """Serves committed offsets."""

    def __init__(self, groups: GroupCoordinator, controller: ControllerRunner) -> None:
        self._groups = groups
        self._controller = controller

    @serves(OffsetFetchRequest)
    async def offset_fetch(self, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
        """Returns committed offsets of groups."""
        if call.version >= FIRST_WITH_GROUPS:
            several = await self._fetch_several(call, request.groups)
            _check_asks_again(call, several)
            return OffsetFetchResponse(groups=several)
        topics, turns = request.topics, Turns()
        group = OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                async for each in turns.through(topics)
            ],
        )
        group = await _each_once(group, set(), turns)
        found = await self._fetch(call, group, turns)
        _check_asks_again(call, (found,))
        if found.error_code and call.version < FIRST_WITH_GROUP_ERROR:
            failed = [_without(each, found.error_code) async for each in turns.through(group.topics or ())]
            found = OffsetFetchResponseGroup(group_id=found.group_id, topics=failed)
        return OffsetFetchResponse(
            error_code=found.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=each.partition_index,
                            committed_offset=each.committed_offset,
                            committed_leader_epoch=each.committed_leader_epoch,
                            metadata=each.metadata,
                            error_code=each.error_code,
                        )
                        async for each in turns.through(topic.partitions)
                    ],
                )
                async for topic in turns.through(found.topics)
            ],
        )

    async def _fetch_several(
        self, call: Call, groups: Sequence[OffsetFetchRequestGroup]
    ) -> list[OffsetFetchResponseGroup]:
        """Fetches group by group, with turns for other tasks, for there may be many."""
        found: list[OffsetFetchResponseGroup] = []
        whole: dict[str, None] = {}
        named: set[Named] = set()
        turns = Turns()
        for group in groups:
            await turns.after(GROUP_ELEMENTS)
            if group.topics is None:
                if group.group_id in whole:
                    continue
                whole[group.group_id] = None
            left = await _each_once(group, named, turns)
            if found and group.topics and not left.topics:
                continue  # all its partitions were named before
            found.append(await self._fetch(call, left, turns))
        return found

    async def _ask_in_parts(
        self, call: Call, shard: DrivenShard, group: OffsetFetchRequestGroup, turns: Turns
    ) -> tuple[OffsetFetchResponseGroup | None, ErrorCode]:
        """Queries a group's coordinator; a large group in parts."""
        if group.topics is None and shard.commits_of(group.group_id) > PIECE_ELEMENTS:
            places, code = await self._groups.ask(shard, asked_by(call, PlacesOf(group.group_id)))
            if places is None:
                return None, code
            by_topic: dict[str, list[int]] = {}
            async for name, number in turns.through(places):
                by_topic.setdefault(name, []).append(number)
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=sorted(by_topic[name]))
                async for name in in_order(list(by_topic), turns)
            ]
        elif group.topics is None:
            return await self._groups.ask(shard, asked_by(call, group))
        else:
            topics = list(group.topics)
        pieces = [
            OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=numbers)
            async for topic in turns.through(topics)
            for numbers in list(cut(topic.partition_indexes, PIECE_ELEMENTS)) or [()]
        ]
        told: dict[tuple[str, bytes], list[OffsetFetchResponsePartitions]] = {}
        for part in await cut_by_weight(pieces, lambda each: 1 + len(each.partition_indexes), turns) or [[]]:
            asked = OffsetFetchRequestGroup(
                group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=part
            )
            reply, code = await self._groups.ask(
                shard, asked_by(call, asked), sum(1 + len(each.partition_indexes) for each in part)
            )
            if reply is None or reply.error_code:
                return reply, code
            if len(pieces) == len(part):
                return reply, code
            for each in reply.topics:
                told.setdefault((each.name, each.topic_id), []).extend(each.partitions)
            await turns.after(len(part))
        joined = [
            OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
            async for (name, topic_id), partitions in turns.through(told.items())
        ]
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=joined), ErrorCode.NONE

    async def _fetch(self, call: Call, group: OffsetFetchRequestGroup, turns: Turns) -> OffsetFetchResponseGroup:
        """Fetches one group, with topic ids where the version has them."""
        has_ids = call.version >= FIRST_WITH_IDS
        gone: list[OffsetFetchResponseTopics] = []
        asked = group
        if has_ids and group.topics is not None:
            known, image = [], self._controller.image
            async for topic in turns.through(group.topics):
                found = image.topic_by_id(topic.topic_id)
                if found is None:
                    gone.append(_without(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    known.append(
                        OffsetFetchRequestTopics(
                            name=found.name, topic_id=topic.topic_id, partition_indexes=topic.partition_indexes
                        )
                    )
            asked = OffsetFetchRequestGroup(
                group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known
            )
        shard, code = self._groups.place(group.group_id)
        if shard is None:
            return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
        reply, code = await self._ask_in_parts(call, shard, asked, turns)
        if reply is None:
            return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
        if has_ids and group.topics is None and not reply.error_code:
            return OffsetFetchResponseGroup(
                group_id=group.group_id, topics=_with_ids(reply.topics, self._controller.image)
            )
        if not gone or reply.error_code:
            return reply
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[*reply.topics, *gone])


def _check_asks_again(call: Call, found: Sequence[OffsetFetchResponseGroup]) -> None:
    """Ends the connection of a client that would not retry after the response.

    librdkafka, up to 2.16 at least, does not retry when another node coordinates the group: it keeps the partition and
    never reads it. When the connection ends, it finds the coordinator and sends the request there.
    """
    if call.client.is_librdkafka and any(each.error_code in _ELSEWHERE for each in found):
        raise ConnectionAbortedError("the group is coordinated elsewhere")


async def _each_once(group: OffsetFetchRequestGroup, named: set[Named], turns: Turns) -> OffsetFetchRequestGroup:
    """Drops partitions that were named before, so that one long metadata string is not sent a million times."""
    if group.topics is None:
        return group
    topics: dict[tuple[str, bytes], list[int]] = {}
    async for topic in turns.through(group.topics):
        numbers = []
        async for number in turns.through(topic.partition_indexes):
            place = group.group_id, topic.name, topic.topic_id, number
            if place not in named:
                named.add(place)
                numbers.append(number)
        if numbers or not topic.partition_indexes:
            topics.setdefault((topic.name, topic.topic_id), []).extend(numbers)
    return OffsetFetchRequestGroup(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=[
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=numbers)
            async for (name, topic_id), numbers in turns.through(topics.items())
        ],
    )


def _with_ids(topics: Sequence[OffsetFetchResponseTopics], image: Image) -> list[OffsetFetchResponseTopics]:
    """Replaces names with topic ids; a topic that was just deleted has none and is left out."""
    return [
        OffsetFetchResponseTopics(topic_id=found.topic_id, partitions=topic.partitions)
        for topic in topics
        if (found := image.topics.get(topic.name)) is not None
    ]


def _without(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=each, committed_offset=-1, metadata="", error_code=code)
            for each in topic.partition_indexes
        ],
    )
