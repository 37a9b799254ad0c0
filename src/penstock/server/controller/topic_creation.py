"""Automatic topic creation: on a client's first use, and for internal topics."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.coordinator import placement
from penstock.metadata.commands import NewTopic, Refusal
from penstock.metadata.names import INTERNAL_TOPICS, check_name
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model import group_events
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CREATION_MS: Final = 5_000
"""How long a client waits for an automatic creation; then it retries."""

TOLD: Final = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR)
"""Errors that a client can act on; any other becomes UNKNOWN_TOPIC_OR_PARTITION, and clients retry."""

SHARE_STATE_SEGMENT_BYTES: Final = "104857600"
EVENTS_KEPT_MS: Final = str(7 * 24 * 3_600_000)
EVENT_PARTITIONS_MAX: Final = 12
"""Few group events are written, but each broker should lead a partition of their topic."""

_COMPACTED = ("cleanup.policy", "compact")
_AS_SENT = ("compression.type", "producer")


def needed_topic(name: str, settings: BrokerSettings, *, is_alone: bool = False) -> NewTopic:
    """The default definition of a topic; an internal topic has one replica in a cluster of a single broker.

    `is_alone` must not be set while a larger cluster starts: its group offsets would have one replica forever.
    """
    made = _needed(name, settings)
    return replace(made, replication_factor=1) if is_alone and name in INTERNAL_TOPICS else made


def _needed(name: str, settings: BrokerSettings) -> NewTopic:
    match name:
        case placement.OFFSETS_TOPIC:
            segment = ("segment.bytes", str(settings.number("offsets.topic.segment.bytes")))
            return _internal(name, settings, "offsets.topic", (_COMPACTED, _AS_SENT, segment))
        case group_events.TOPIC:
            partitions = min(settings.number("offsets.topic.num.partitions"), EVENT_PARTITIONS_MAX)
            replicas = settings.number("offsets.topic.replication.factor")
            kept = (("cleanup.policy", "delete"), ("retention.ms", EVENTS_KEPT_MS))
            return NewTopic(name, partitions, replicas, configs=kept)
        case "__transaction_state":
            configs = (
                _COMPACTED,
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(settings.number("transaction.state.log.min.isr"))),
                ("segment.bytes", str(settings.number("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            )
            return _internal(name, settings, "transaction.state.log", configs)
        case "__share_group_state":
            configs = (
                ("cleanup.policy", "delete"),
                _AS_SENT,
                ("min.insync.replicas", str(settings.number("share.coordinator.state.topic.min.isr"))),
                ("retention.ms", "-1"),
                ("segment.bytes", SHARE_STATE_SEGMENT_BYTES),
            )
            return _internal(name, settings, "share.coordinator.state.topic", configs)
    return NewTopic(name)


def _internal(name: str, settings: BrokerSettings, prefix: str, configs: tuple[tuple[str, str], ...]) -> NewTopic:
    partitions = settings.number(f"{prefix}.num.partitions")
    return NewTopic(name, partitions, settings.number(f"{prefix}.replication.factor"), configs=configs)


def _asked_for(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=(),
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def _is_alone(controller: ControllerRunner) -> bool:
    """Whether this node is the whole cluster: its only voter, and its only broker."""
    return controller.is_only_voter and len(controller.image.brokers) <= 1


async def arrival(controller: ControllerRunner, arrivals: TopicArrivals, names: Sequence[str]) -> None:
    """Returns when topics that another node created are in the image, and their logs on this node are writable."""
    await controller.until(lambda: all(name in controller.image.topics for name in names))
    await arrivals.settled(names)


async def create_missing(
    controller: ControllerRunner, channel: ControllerChannel, arrivals: TopicArrivals, names: Sequence[str]
) -> dict[str, ErrorCode]:
    """Creates topics and waits until they are writable; returns the error code of each one that failed."""
    failed: dict[str, ErrorCode] = {}
    wanted = []
    for name in names:
        try:
            check_name(name)
            wanted.append(needed_topic(name, controller.settings, is_alone=_is_alone(controller)))
        except Refusal as refusal:
            failed[name] = refusal.code
    if not wanted:
        return failed
    try:
        async with asyncio.timeout(CREATION_MS / 1000):
            request = CreateTopicsRequest(topics=[_asked_for(topic) for topic in wanted], timeout_ms=CREATION_MS)
            response = await channel.ask(request, CreateTopicsResponse, timeout_ms=CREATION_MS)
            for result in response.topics:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    is_told = result.error_code in TOLD
                    failed[result.name] = result.error_code if is_told else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await arrival(controller, arrivals, [topic.name for topic in wanted if topic.name not in failed])
    except (ProtocolError, TimeoutError):
        failed |= {topic.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in wanted}
    return failed
