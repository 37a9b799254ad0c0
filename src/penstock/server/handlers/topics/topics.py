"""CreateTopics, DeleteTopics, CreatePartitions: creates and deletes topics, and adds partitions.

Serves    CreateTopics 2–7, DeleteTopics 1–6 (by id from version 6 on), CreatePartitions 0–3.
Answers   once the change is durable and new partitions can be written; error codes and messages are the controller's. A
          timeout of 0 or less is REQUEST_TIMED_OUT at once, and nothing is changed; after any other timeout, the change
          may still be made. A large request is decided in pieces of whole topics.
Departs   from Kafka 4.3: a CreateTopics response has at most 20,000 settings of new topics (CONFIGS_TOLD_MAX); for
          topics whose settings do not fit they are null, with POLICY_VIOLATION as topic_config_error_code. More than
          1,000 settings of a new topic (SETTINGS_MAX) are INVALID_REQUEST. More than 40,000 replicas of one topic in
          one request are POLICY_VIOLATION.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar, cast

from penstock.metadata.commands import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicConfig,
    TopicRef,
)
from penstock.metadata.creation import TOO_MANY_PARTITIONS, partitions_wanted
from penstock.metadata.image import Image
from penstock.metadata.view import PARTITIONS_PER_COMMAND_MAX
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.shard import Command
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.handlers.topics.configs import SETTINGS_MAX, too_many_settings
from penstock.server.loop.pieces import Turns, by_name, cut_by_weight
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

FIRST_WITH_DELETION_DISABLED = 3
FIRST_DELETED_BY_ID = 6
CONFIGS_TOLD_MAX: Final = 20_000
"""Settings in one CreateTopics response; those that topics share count once."""
SHARED_MAX: Final = 8
"""Recent lists of settings that are searched for a shared one."""
TOPIC_ELEMENTS: Final = 6
"""Elements of `pieces` that a topic counts as, besides its partitions and settings."""


Result = TypeVar("Result", CreatedTopic, DeletedTopic, GrownTopic)
Asked = TypeVar("Asked", CreateTopics, DeleteTopics, CreatePartitions)


class TopicsHandler:
    """Has the controller create, grow and delete topics, and waits until new partitions can be written."""

    def __init__(self, controller: ControllerRunner, arrivals: TopicArrivals) -> None:
        self._controller = controller
        self._arrivals = arrivals

    @serves(CreateTopicsRequest, is_for_controller=True)
    async def create_topics(self, request: CreateTopicsRequest, _call: Call) -> CreateTopicsResponse:
        """Creates topics."""
        turns, told = Turns(), _Told()
        named = await by_name(((topic.name, topic) for topic in request.topics), turns)
        refused: list[CreatedTopic] = []
        new: dict[str, list[NewTopic]] = {}
        async for name, found in turns.through(named.items()):
            if len(found[0].configs) > SETTINGS_MAX:
                message = too_many_settings(len(found[0].configs))
                refused.append(CreatedTopic(name, ErrorCode.INVALID_REQUEST, message))
            elif len(new) <= PARTITIONS_PER_COMMAND_MAX:
                new[name] = [_new_topic(each) for each in found]
        settings = self._controller.settings
        wanted = sum(partitions_wanted(found[0], settings) for found in new.values() if len(found) == 1)
        if max(len(new), wanted) > PARTITIONS_PER_COMMAND_MAX:
            code, why = ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS
            refused = [CreatedTopic(name, code, why) async for name in turns.through(named)]
            new = {}
        parts = await cut_by_weight(new.values(), self._weight, turns)
        created = await self._carry_out(
            [CreateTopics(tuple(topic for found in part for topic in found), request.validate_only) for part in parts],
            request.timeout_ms,
            lambda command, code, message: [
                CreatedTopic(name, code, message) for name in dict.fromkeys(topic.name for topic in command.topics)
            ],
            waits=not request.validate_only,
        )
        topics = [told.created(topic) async for topic in turns.through([*created, *refused])]
        return CreateTopicsResponse(throttle_time_ms=0, topics=topics)

    def _weight(self, topics: Sequence[NewTopic]) -> int:
        settings = self._controller.settings
        return sum(TOPIC_ELEMENTS + len(t.configs) + max(0, partitions_wanted(t, settings)) for t in topics)

    @serves(DeleteTopicsRequest, is_for_controller=True)
    async def delete_topics(self, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
        """Deletes topics."""
        turns = Turns()
        if call.version >= FIRST_DELETED_BY_ID:
            refs: Iterable[TopicRef] = (TopicRef(topic.name, topic.topic_id) for topic in request.topics)
        else:
            refs = (TopicRef(name) for name in request.topic_names)
        found = await by_name(((ref, ref) for ref in refs), turns)
        # A topic that is named both by name and by id is detected only if both are in one piece.
        named = await _by_topic((each for same in found.values() for each in same), self._controller.image, turns)
        parts = await cut_by_weight(named, lambda same: TOPIC_ELEMENTS * len(same), turns)
        deleted = await self._carry_out(
            [DeleteTopics(tuple(ref for same in part for ref in same)) for part in parts],
            request.timeout_ms,
            lambda command, code, message: [
                DeletedTopic(topic.name, topic.topic_id, code, message) for topic in dict.fromkeys(command.topics)
            ],
            waits=False,
        )
        return DeleteTopicsResponse(
            throttle_time_ms=0,
            responses=[
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=_known_to(call.version, topic.code),
                    error_message=topic.message,
                )
                async for topic in turns.through(deleted)
            ],
        )

    @serves(CreatePartitionsRequest, is_for_controller=True)
    async def create_partitions(self, request: CreatePartitionsRequest, _call: Call) -> CreatePartitionsResponse:
        """Adds partitions to topics."""
        turns = Turns()
        named = await by_name(((topic.name, topic) for topic in request.topics), turns)
        more = [[_more(each) for each in found] async for found in turns.through(named.values())]
        parts = await cut_by_weight(more, self._added_weight, turns)
        grown = await self._carry_out(
            [CreatePartitions(tuple(t for found in part for t in found), request.validate_only) for part in parts],
            request.timeout_ms,
            lambda command, code, message: [
                GrownTopic(name, code, message) for name in dict.fromkeys(topic.name for topic in command.topics)
            ],
            waits=not request.validate_only,
        )
        return CreatePartitionsResponse(
            throttle_time_ms=0,
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=topic.code, error_message=topic.message)
                async for topic in turns.through(grown)
            ],
        )

    def _added_weight(self, topics: Sequence[MorePartitions]) -> int:
        known = self._controller.image.topics
        return TOPIC_ELEMENTS + sum(max(0, t.count - len(known[t.name].partitions)) for t in topics if t.name in known)

    async def _carry_out(
        self,
        commands: Sequence[Asked],
        timeout_ms: int,
        fail: Callable[[Asked, ErrorCode, str | None], list[Result]],
        *,
        waits: bool,
    ) -> list[Result]:
        """Runs commands; `waits` for new partitions to be writable. `fail` makes the error results of a command."""
        turns = Turns()

        async def fail_all(code: ErrorCode, message: str | None) -> list[Result]:
            return [each for command in commands async for each in turns.through(fail(command, code, message))]

        if timeout_ms <= 0:
            return await fail_all(ErrorCode.REQUEST_TIMED_OUT, None)
        results: list[Result] = []
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                replies = await self._controller.ask_in_turn(cast("Sequence[Command[tuple[Result, ...]]]", commands))
                for command, reply in zip(commands, replies, strict=True):
                    results += fail(command, reply.code, str(reply)) if isinstance(reply, ProtocolError) else reply
                if waits:
                    await self._arrivals.settled([result.name or "" for result in results if not result.code])
        except TimeoutError:
            late = await fail_all(ErrorCode.REQUEST_TIMED_OUT, None)
            named = {result.name: result for result in late}
            return [result if result.code else named[result.name] for result in results] or late
        except ProtocolError as error:
            return await fail_all(error.code, str(error))
        return results


async def _by_topic(refs: Iterable[TopicRef], image: Image, turns: Turns) -> Iterable[list[TopicRef]]:
    topics: dict[str | bytes, list[TopicRef]] = {}
    async for ref in turns.through(refs):
        key: str | bytes = ref.topic_id
        if ref.name is not None:
            key = ref.name
        elif (known := image.topic_by_id(ref.topic_id)) is not None:
            key = known.name
        topics.setdefault(key, []).append(ref)
    return topics.values()


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


class _Told:
    """Results for the new topics of one response. Topics without overrides share one list of settings."""

    def __init__(self) -> None:
        self._left = CONFIGS_TOLD_MAX
        self._lately: deque[tuple[tuple[TopicConfig, ...], tuple[CreatableTopicConfigs, ...]]] = deque(
            maxlen=SHARED_MAX
        )

    def created(self, topic: CreatedTopic) -> CreatableTopicResult:
        configs = self._configs(topic.configs)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=topic.code,
            error_message=topic.message,
            topic_config_error_code=ErrorCode.POLICY_VIOLATION if configs is None else ErrorCode.NONE,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=configs,
        )

    def _configs(self, configs: tuple[TopicConfig, ...]) -> tuple[CreatableTopicConfigs, ...] | None:
        for known, told in self._lately:
            if known is configs:
                return told
        if len(configs) > self._left:
            return None
        self._left -= len(configs)
        told = tuple(
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in configs
        )
        self._lately.append((configs, told))
        return told


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    given = topic.assignments
    assignments = None if given is None else tuple(tuple(each.broker_ids) for each in given)
    return MorePartitions(topic.name, topic.count, assignments)


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    """Maps TOPIC_DELETION_DISABLED for older clients, which do not know it."""
    is_news = code is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DELETION_DISABLED
    return ErrorCode.INVALID_REQUEST if is_news else code
