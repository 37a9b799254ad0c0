"""CreateTopics, DeleteTopics, CreatePartitions: topics come, grow and go.

Serves    CreateTopics 2–7, DeleteTopics 1–6 (by id from 6 on), CreatePartitions 0–3.
Answers   once the change is durable and new partitions can be written; codes and sentences are the controller's. A
          time-out of 0 or less is REQUEST_TIMED_OUT at once, and nothing is done; after any other, it may yet be done.
Departs   nowhere from Kafka 4.3.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.metadata.commands import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.shard import Command
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.serving import Call, serves
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


@serves(CreateTopicsRequest, is_for_controller=True)
async def create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    """New topics."""
    command = CreateTopics(tuple(_new_topic(topic) for topic in request.topics), request.validate_only)
    created = await _carry_out(
        node_of(call),
        command,
        request.timeout_ms,
        lambda code, message: [CreatedTopic(topic.name, code, message) for topic in request.topics],
        waits=not request.validate_only,
    )
    return CreateTopicsResponse(throttle_time_ms=0, topics=[_created(topic) for topic in created])


@serves(DeleteTopicsRequest, is_for_controller=True)
async def delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    """Topics go."""
    if call.version >= FIRST_DELETED_BY_ID:
        topics = tuple(TopicRef(topic.name, topic.topic_id) for topic in request.topics)
    else:
        topics = tuple(TopicRef(name) for name in request.topic_names)
    deleted = await _carry_out(
        node_of(call),
        DeleteTopics(topics),
        request.timeout_ms,
        lambda code, message: [DeletedTopic(topic.name, topic.topic_id, code, message) for topic in topics],
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
            for topic in deleted
        ],
    )


@serves(CreatePartitionsRequest, is_for_controller=True)
async def create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    """Topics grow."""
    command = CreatePartitions(tuple(_more(topic) for topic in request.topics), request.validate_only)
    grown = await _carry_out(
        node_of(call),
        command,
        request.timeout_ms,
        lambda code, message: [GrownTopic(topic.name, code, message) for topic in request.topics],
        waits=not request.validate_only,
    )
    return CreatePartitionsResponse(
        throttle_time_ms=0,
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=topic.code, error_message=topic.message)
            for topic in grown
        ],
    )


# --- carrying out -----------------------------------------------------------------------------------------------------

Result = TypeVar("Result", CreatedTopic, DeletedTopic, GrownTopic)


async def _carry_out(
    node: Needs,
    command: Command[tuple[Result, ...]],
    timeout_ms: int,
    fail_all: Callable[[ErrorCode, str | None], list[Result]],
    *,
    waits: bool,
) -> Sequence[Result]:
    """Asks the controller, and on request waits until the topics are here."""
    if timeout_ms <= 0:
        return fail_all(ErrorCode.REQUEST_TIMED_OUT, None)
    results: Sequence[Result] = ()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            results = await node.controller.ask(command)
            if waits:
                await node.adoption.settled([result.name or "" for result in results if not result.code])
    except TimeoutError:
        late = fail_all(ErrorCode.REQUEST_TIMED_OUT, None)
        by_name = {result.name: result for result in late}
        return [result if result.code else by_name[result.name] for result in results] or late
    except ProtocolError as error:
        return fail_all(error.code, str(error))
    return results


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


def _created(topic: CreatedTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=topic.code,
        error_message=topic.message,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in topic.configs
        ],
    )


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    given = topic.assignments
    assignments = None if given is None else tuple(tuple(each.broker_ids) for each in given)
    return MorePartitions(topic.name, topic.count, assignments)


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    """Older clients do not know that deletion can be disabled."""
    is_news = code is ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DELETION_DISABLED
    return ErrorCode.INVALID_REQUEST if is_news else code
