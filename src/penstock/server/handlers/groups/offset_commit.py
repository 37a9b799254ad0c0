"""OffsetCommit: commits offsets of a group.

Serves    OffsetCommit 2–10; topic ids from version 10 on.
Answers   the decision of the group's coordinator (`coordinator/offsets.py`), once the high watermark has passed it. A
          topic or partition that does not exist fails alone, with UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID.
Departs   from Kafka 4.3: a commit of more than 500 topics and partitions (PIECE_ELEMENTS) is split into several
          decisions; offsets expire only in groups without members, counted from when the last member left.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.metadata.image import Image, Topic
from penstock.model.errors import ErrorCode
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.serving import Answer, Buffers, Call, Unfinished, serves_overlapping
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.groups.group_answer import GroupAnswer, asked_by, framed, framed_by_worker
from penstock.server.groups.group_coordinator import Answered, GroupCoordinator
from penstock.server.groups.group_shard import DrivenShard
from penstock.server.loop.pieces import PIECE_ELEMENTS, Turns, cut
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_WITH_IDS: Final = 10
_MISSING: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Begun: TypeAlias = "tuple[list[OffsetCommitRequestTopic], asyncio.Future[Answered[OffsetCommitResponse]] | None]"
"""A part of a commit and its reply; None if the group is not coordinated here."""


class OffsetCommitHandler:
    """Serves commits."""

    def __init__(self, groups: GroupCoordinator, controller: ControllerRunner, codec: CodecWorker) -> None:
        self._groups = groups
        self._controller = controller
        self._codec = codec

    @serves_overlapping(OffsetCommitRequest, is_prompt=True)
    def offset_commit(self, request: OffsetCommitRequest, call: Call) -> Answer | Unfinished:
        """Commits offsets of a group."""
        version = call.version
        elements = len(request.topics) + sum(len(topic.partitions) for topic in request.topics)
        if elements > PIECE_ELEMENTS:
            return Unfinished(self._commit_in_parts(call, request))
        image = self._controller.image
        known, gone = _split(request.topics, image, version)

        def refused(code: ErrorCode) -> OffsetCommitResponse:
            return OffsetCommitResponse(topics=_joined([_failed(topic, _size(code)) for topic in known], gone))

        if not known and gone:
            return framed(call, OffsetCommitResponse(topics=gone))
        shard, code = self._groups.place(request.group_id)
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

    async def _commit_in_parts(self, call: Call, request: OffsetCommitRequest) -> Answer:
        """Commits many partitions in pieces; of a partition that is named twice, the last entry counts."""
        turns = Turns()
        topics: dict[str | bytes, tuple[OffsetCommitRequestTopic, dict[int, OffsetCommitRequestPartition]]] = {}
        has_ids = call.version >= FIRST_WITH_IDS
        for topic in request.topics:
            _, found = topics.setdefault(topic.topic_id if has_ids else topic.name, (topic, {}))
            async for each in turns.through(topic.partitions):
                found[each.partition_index] = each
            await turns.after()
        image, gone = self._controller.image, list[OffsetCommitResponseTopic]()
        flat: list[tuple[OffsetCommitRequestTopic, OffsetCommitRequestPartition]] = []
        async for topic, partitions in turns.through(topics.values()):
            for some in cut(list(partitions.values()), PIECE_ELEMENTS):
                (here, missing) = _split([_renamed(topic, some)], image, call.version)
                gone += missing
                flat += [(known, each) for known in here for each in known.partitions]
                await turns.after(len(some))
        shard, code = self._groups.place(request.group_id)
        asked: list[Begun] = []
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
            begun = None if shard is None else self._groups.begin(shard, asked_by(call, command), len(part))
            asked.append((known, begun))
            await turns.after(len(part))
        return self._committed(call, asked, gone, code, turns)

    async def _committed(
        self,
        call: Call,
        asked: Sequence[Begun],
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
        return await framed_by_worker(self._codec, call, response)


class CommitAnswer(GroupAnswer[OffsetCommitResponse]):
    """The response to a commit; `gone` holds topics and partitions that do not exist."""

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
        """Joins the shard's reply and `gone`."""
        if reply is not None and self._gone:
            reply = OffsetCommitResponse(topics=_joined(reply.topics, self._gone))
        super().told(reply, code)


def _size(code: ErrorCode) -> ErrorCode:
    """Maps the code for a commit that does not fit into a batch to Kafka's code."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.UNKNOWN_SERVER_ERROR else code


def _renamed(
    topic: OffsetCommitRequestTopic, partitions: Sequence[OffsetCommitRequestPartition]
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _split(
    topics: Sequence[OffsetCommitRequestTopic], image: Image, version: int
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Existing topics and partitions, by name, and error results for the others."""
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
    """Merges results: each topic once, with all its partitions."""
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
