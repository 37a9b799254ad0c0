"""OffsetCommit, OffsetFetch, OffsetDelete: how far groups have read.

Serves    OffsetCommit 2–10, OffsetFetch 1–10 (several groups from version 8 on), OffsetDelete 0; topic ids from version
          10 on.
Answers   what the group's coordinator says (`coordinator/offsets.py`); a commit is acknowledged when the high watermark
          has passed it. A topic or partition that is not there is UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, for
          itself alone.
Departs   from Kafka 4.3: offsets expire only in groups that nobody is in, counted from when that was; `require_stable`
          waits for nothing until there are transactions; a group that is asked for all its topics several times in one
          request is told of once, and so is a partition that is named several times; the connection of librdkafka ends
          when it asks a node that does not coordinate the group, for it would not ask again.
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, TypeAlias

from penstock.coordinator.offsets import PlacesOf
from penstock.coordinator.settings import TOMBSTONES_MAX
from penstock.metadata.image import Image, Topic
from penstock.model.errors import ErrorCode
from penstock.server.group_answer import GroupAnswer, asked_by, framed, framed_by_worker
from penstock.server.group_shard import DrivenShard
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.pieces import PIECE_ELEMENTS, Turns, cut, cut_by_weight, in_order, partitions_once
from penstock.server.serving import Answer, Buffers, Call, Unfinished, serves, serves_overlapping
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
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
"""What it counts as to ask for a group."""
Named: TypeAlias = tuple[str, str, bytes, int]
"""A group, a topic by name or id, and a partition."""
_MISSING: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_ELSEWHERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

# --- committing -------------------------------------------------------------------------------------------------------


@serves_overlapping(OffsetCommitRequest, is_prompt=True)
def offset_commit(request: OffsetCommitRequest, call: Call) -> Answer | Unfinished:
    """A group remembers how far it has read."""
    version = call.version
    elements = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
    if elements > PIECE_ELEMENTS:
        return Unfinished(_commit_in_parts(call, request))
    node = node_of(call)
    image = node.controller.image
    known, gone = _split(request.topics, image, version)

    def refused(code: ErrorCode) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=_joined([_failed(topic, _size(code)) for topic in known], gone))

    if not known and gone:
        return framed(call, OffsetCommitResponse(topics=gone))
    shard, code = node.groups.place(request.group_id)
    if shard is None:
        return framed(call, refused(code))
    if gone or version >= FIRST_WITH_IDS:
        request = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=known,
        )
    waiting = CommitAnswer(call, shard, refused, gone)
    waiting.ticket = shard.gather(asked_by(call, request), waiting.told, elements)
    return waiting


class CommitAnswer(GroupAnswer):
    """A commit, in which topics and partitions may have been named that are not there (`gone`)."""

    __slots__ = ("_gone",)

    def __init__(
        self,
        call: Call,
        shard: DrivenShard,
        refused: Callable[[ErrorCode], OffsetCommitResponse],
        gone: Sequence[OffsetCommitResponseTopic],
    ) -> None:
        super().__init__(call, shard, refused)
        self._gone = gone

    def told(self, reply: OffsetCommitResponse | None, code: ErrorCode) -> None:
        """Both parts together."""
        if reply is not None and self._gone:
            reply = OffsetCommitResponse(topics=_joined(reply.topics, self._gone))
        super().told(reply, code)


async def _commit_in_parts(call: Call, request: OffsetCommitRequest) -> Answer:
    """A commit of many partitions is several decisions; of a partition that is named several times the last counts."""
    node, turns = node_of(call), Turns()
    topics: dict[str | bytes, tuple[OffsetCommitRequestTopic, dict[int, OffsetCommitRequestPartition]]] = {}
    has_ids = call.version >= FIRST_WITH_IDS
    for topic in request.topics:
        _, found = topics.setdefault(topic.topic_id if has_ids else topic.name, (topic, {}))
        async for each in turns.through(topic.partitions):
            found[each.partition_index] = each
        await turns.after()
    image, gone = node.controller.image, list[OffsetCommitResponseTopic]()
    flat: list[tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]] = []
    async for topic, partitions in turns.through(topics.values()):
        for some in cut(list(partitions.values()), PIECE_ELEMENTS):
            (here, missing) = _split([_renamed(topic, some)], image, call.version)
            gone += missing
            flat += [(known, each) for known in here for each in known.partitions]
            await turns.after(len(some))
    shard, code = node.groups.place(request.group_id)
    asked: list[tuple[list[OffsetCommitRequestTopic], asyncio.Future[Any] | None]] = []
    for part in cut(flat, PIECE_ELEMENTS):
        grouped: dict[str | bytes, tuple[OffsetCommitRequestTopic, list[OffsetCommitRequestPartition]]] = {}
        for topic, each in part:
            grouped.setdefault(topic.topic_id if has_ids else topic.name, (topic, []))[1].append(each)
        known = [_renamed(topic, some) for topic, some in grouped.values()]
        command = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=known,
        )
        begun = None if shard is None else node.groups.begin(shard, asked_by(call, command), len(part))
        asked.append((known, begun))
        await turns.after(len(part))
    return _committed(call, asked, gone, code, turns)


async def _committed(
    call: Call,
    asked: "Sequence[tuple[list[OffsetCommitRequestTopic], asyncio.Future[Any] | None]]",
    gone: list[OffsetCommitResponseTopic],
    code: ErrorCode,
    turns: Turns,
) -> Buffers:
    topics: dict[tuple[str, bytes], list[OffsetCommitResponsePartition]] = {}
    told: list[Sequence[OffsetCommitResponseTopic]] = [gone]
    for known, begun in asked:
        reply: OffsetCommitResponse | None = None
        if begun is not None:
            reply, code = await begun
        told.append([_failed(topic, _size(code)) for topic in known] if reply is None else reply.topics)
        await turns.after(len(told[-1]))
    async for topic in turns.through(topic for part in told for topic in part):
        topics.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
            async for (name, topic_id), partitions in turns.through(topics.items())
        ]
    )
    return await framed_by_worker(call, response)


def _size(code: ErrorCode) -> ErrorCode:
    """What no record can hold is too large."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.UNKNOWN_SERVER_ERROR else code


def _renamed(
    topic: OffsetCommitRequestTopic, partitions: Sequence[OffsetCommitRequestPartition]
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _split(
    topics: Sequence[OffsetCommitRequestTopic], image: Image, version: int
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Topics and partitions that are there, by name; and what is said of the others."""
    known, gone = [], []
    has_ids = version >= FIRST_WITH_IDS
    for topic in topics:
        found = image.topic_by_id(topic.topic_id) if has_ids else image.topics.get(topic.name)
        if found is None:
            gone.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID if has_ids else _MISSING))
            continue
        placed = found.partitions
        missing = [each for each in topic.partitions if each.partition_index not in placed]
        if missing:
            here = [each for each in topic.partitions if each.partition_index in placed]
            gone.append(_failed(_named(found, topic.topic_id, missing), _MISSING))
            if here:
                known.append(_named(found, topic.topic_id, here))
        else:
            known.append(_named(found, topic.topic_id, topic.partitions) if has_ids else topic)
    return known, gone


def _named(
    found: Topic, topic_id: bytes, partitions: Sequence[OffsetCommitRequestPartition]
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(name=found.name, topic_id=topic_id, partitions=partitions)


def _joined(
    told: Sequence[OffsetCommitResponseTopic], gone: Sequence[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Each topic once, with all its partitions."""
    topics: dict[tuple[str, bytes], list[OffsetCommitResponsePartition]] = {}
    for topic in (*told, *gone):
        topics.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
    return [
        OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in topics.items()
    ]


def _failed(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


# --- fetching ---------------------------------------------------------------------------------------------------------


@serves(OffsetFetchRequest)
async def offset_fetch(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    """How far groups have read."""
    node = node_of(call)
    if call.version >= FIRST_WITH_GROUPS:
        several = await _fetch_several(node, call, request.groups)
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
    found = await _fetch(node, call, group, turns)
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


def _check_asks_again(call: Call, found: Sequence[OffsetFetchResponseGroup]) -> None:
    """Ends the connection of a client that would take the answer for the last word.

    librdkafka, up to 2.16 at least, does not ask again when it is told that somebody else coordinates the group: it
    keeps the partition and never reads it. When the connection ends it looks for the coordinator and asks there.
    """
    if call.client.is_librdkafka and any(each.error_code in _ELSEWHERE for each in found):
        raise ConnectionAbortedError("the group is coordinated elsewhere")


async def _fetch_several(
    node: Needs, call: Call, groups: Sequence[OffsetFetchRequestGroup]
) -> list[OffsetFetchResponseGroup]:
    """Others have their turn between them, for there may be many."""
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
            continue  # all of it was named before
        found.append(await _fetch(node, call, left, turns))
    return found


async def _each_once(group: OffsetFetchRequestGroup, named: set[Named], turns: Turns) -> OffsetFetchRequestGroup:
    """Without partitions that were named before: a long note, committed once, is not told a million times."""
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


async def _ask_in_parts(
    node: Needs, call: Call, shard: DrivenShard, group: OffsetFetchRequestGroup, turns: Turns
) -> tuple[OffsetFetchResponseGroup | None, ErrorCode]:
    """What the coordinator knows of a group; a large one is asked for in parts."""
    if group.topics is None and shard.commits_of(group.group_id) > PIECE_ELEMENTS:
        places, code = await node.groups.ask(shard, asked_by(call, PlacesOf(group.group_id)))
        if places is None:
            return None, code
        by_topic: dict[str, list[int]] = {}
        async for topic, number in turns.through(places):
            by_topic.setdefault(topic, []).append(number)
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=sorted(by_topic[name]))
            async for name in in_order(list(by_topic), turns)
        ]
    elif group.topics is None:
        return await node.groups.ask(shard, asked_by(call, group))
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
        reply, code = await node.groups.ask(
            shard, asked_by(call, asked), sum(1 + len(each.partition_indexes) for each in part)
        )
        if reply is None or reply.error_code:
            return reply, code
        if len(pieces) == len(part):
            return reply, code
        for topic in reply.topics:
            told.setdefault((topic.name, topic.topic_id), []).extend(topic.partitions)
        await turns.after(len(part))
    joined = [
        OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
        async for (name, topic_id), partitions in turns.through(told.items())
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=joined), ErrorCode.NONE


async def _fetch(node: Needs, call: Call, group: OffsetFetchRequestGroup, turns: Turns) -> OffsetFetchResponseGroup:
    """One group, topics by id where the version has them."""
    has_ids = call.version >= FIRST_WITH_IDS
    gone: list[OffsetFetchResponseTopics] = []
    asked = group
    if has_ids and group.topics is not None:
        known, image = [], node.controller.image
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
    shard, code = node.groups.place(group.group_id)
    if shard is None:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
    reply, code = await _ask_in_parts(node, call, shard, asked, turns)
    if reply is None:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
    if has_ids and group.topics is None and not reply.error_code:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=_with_ids(reply.topics, node.controller.image))
    if not gone or reply.error_code:
        return reply
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[*reply.topics, *gone])


def _with_ids(topics: Sequence[OffsetFetchResponseTopics], image: Image) -> list[OffsetFetchResponseTopics]:
    """A topic that was deleted a moment ago has none, and is not told of."""
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


# --- forgetting -------------------------------------------------------------------------------------------------------


@serves(OffsetDeleteRequest)
async def offset_delete(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    """A group forgets how far it has read."""
    node = node_of(call)
    shard, code = node.groups.place(request.group_id)
    if shard is None:
        return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=())
    turns, image = Turns(), node.controller.image
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
        reply: OffsetDeleteResponse | None
        reply, code = await node.groups.ask(shard, asked_by(call, asked), 1 + len(part))
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
